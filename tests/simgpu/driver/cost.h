/* SPDX-License-Identifier: Apache-2.0 */
/* The time that memory calls take on a real card, for SIMGPU_LATENCY. */
#ifndef SIMGPU_COST_H
#define SIMGPU_COST_H

#include <stdbool.h>
#include <stdint.h>

enum sim_cost {
    SIM_COST_CREATE,
    SIM_COST_MAP,
    SIM_COST_SET_ACCESS,
    SIM_COST_UNMAP,
    SIM_COST_RELEASE,
    SIM_COSTS
};

/* For one chunk. The driver works chunk by chunk: a call for several chunks takes the sum of their
 * times as neighbours. That is more than for single calls on the device, and less on the host. */
uint64_t sim_cost_ns(enum sim_cost call, uint64_t bytes, bool on_host, bool neighbours);

#endif
