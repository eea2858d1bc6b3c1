/* SPDX-License-Identifier: Apache-2.0 */
/* Heat: which memory of the pool the device is asked to touch. The pool learns it (ms_pool_touch)
 * from the program's calls: kernel launches, by the pointers among their parameters where these are
 * known (parameters.h); graph launches, by their nodes (graph_heat.h); copies and memsets. The pool
 * knows its allocations by itself. Pointers in device memory are not seen, which costs speed, never
 * correctness.
 *
 * Nothing is read until memory pressure first passes the warning threshold; from then on always.
 * The pool gets what was noted later: at allocations, and before it chooses what to spill
 * (ms_heat_settle). The only driver calls are those of parameters.h; the only lock is, now and
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

/* The warning threshold was passed for the first time. */
void ms_heat_begin(void);

/* Passes what was noted since the last call to the pools. The caller holds at most a pool's growth
 * lock. */
void ms_heat_settle(void);

/* The device is asked to touch the blocks or tensors around these values. A value that is no
 * address of the pool is skipped. Only while heat is on. */
void ms_heat_touch_each(const uint64_t *values, size_t count);

/* The same for a launch that the driver accepted. The arrays are those of cuLaunchKernel. */
void ms_heat_launch(const void *function, void **parameters, void **extra);

/* Notes the parameters of a launch if the driver accepted it. Returns `result`. */
static inline CUresult ms_heat_launched(CUresult result, const void *function, void **parameters,
                                        void **extra)
{
    if (result == CUDA_SUCCESS && ms_heat_is_on()) {
        ms_heat_launch(function, parameters, extra);
    }
    return result;
}

#endif
