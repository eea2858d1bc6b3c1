/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What calls and copies take on a real card, for SIMGPU_LATENCY.
 */
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

/* Of one chunk. The driver does its work chunk by chunk: a call for several takes their sum. */
uint64_t sim_cost_ns(enum sim_cost call, uint64_t bytes, bool on_host);

/* Of a copy between device and host memory; each direction has the bus for itself. Waits until it
 * would be over, had it begun when the one before it ended, or now. */
enum sim_bus { SIM_BUS_NONE, SIM_BUS_DOWN, SIM_BUS_UP };
void sim_cost_pass_bus(enum sim_bus bus, uint64_t bytes);

/* How long the copy under way still takes, in either direction; 0: there is none. */
uint64_t sim_cost_bus_left_ns(void);

#endif
