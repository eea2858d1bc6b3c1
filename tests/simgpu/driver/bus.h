/* SPDX-License-Identifier: Apache-2.0 */
/* The bus between host and device with SIMGPU_LATENCY. */
#ifndef SIMGPU_BUS_H
#define SIMGPU_BUS_H

#include <stdint.h>

/* For a copy between device and host memory; each direction has the bus to itself. Returns when the
 * copy will be over, as a time of sim_now_ns: it begins when the one before it ends, or now. So a
 * thread that is late, on a busy machine, does not make copies late. */
enum sim_bus { SIM_BUS_NONE, SIM_BUS_DOWN, SIM_BUS_UP };
uint64_t sim_bus_take(enum sim_bus bus, uint64_t bytes);

/* How long the present part of a copy still takes, in either direction; 0: none is under way. */
uint64_t sim_bus_part_left_ns(void);

#endif
