/* SPDX-License-Identifier: Apache-2.0 */
/* Heat: which of the pool's memory the device is asked to touch, passed to the pool (ms_pool_touch)
 * from what the program asks the driver for: launches, by the pointers among the parameters of
 * kernels, wherever these are known (parameters.h); launches of graphs, by those of their nodes
 * (graph_heat.h); copies and memsets. Allocations the pool knows by itself. Pointers that lie in
 * device memory are not seen: that costs speed, never correctness.
 *
 * Nothing is looked at before memory pressure first passed the warning threshold; then for good.
 * What is noted is passed to the pool later, at allocations and before it chooses what is spilled
 * (ms_heat_settle). No call into the driver but the questions of parameters.h; no lock but, now and
 * then, the pool's state lock. */
#ifndef MEMSHIM_SHIM_POLICY_HEAT_H
#define MEMSHIM_SHIM_POLICY_HEAT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/driver/hook.h"

extern _Atomic bool ms_heat_on;

static inline bool ms_heat_is_on(void)
{
    return __builtin_expect(atomic_load_explicit(&ms_heat_on, memory_order_relaxed), 0);
}

/* The warning threshold was passed; once. */
void ms_heat_begin(void);

/* Passes what was noted since the last time to the pools. No lock but a pool's growth lock is
 * held. */
void ms_heat_settle(void);

/* The device is asked to touch what lies there, all of the block or tensor; nothing where a value
 * is no such address. Only while heat is on. */
void ms_heat_touch_each(const uint64_t *values, size_t count);

/* The same of a launch that the driver took. The arrays are as cuLaunchKernel was given them. */
void ms_heat_launch(const void *function, void **parameters, void **extra);

/* Notes what a launch was given, where the driver took it; its result as it was. */
static inline CUresult ms_heat_launched(CUresult result, const void *function, void **parameters,
                                        void **extra)
{
    if (result == CUDA_SUCCESS && ms_heat_is_on()) {
        ms_heat_launch(function, parameters, extra);
    }
    return result;
}

#endif
