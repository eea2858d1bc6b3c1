/* SPDX-License-Identifier: Apache-2.0 */
/* MEMSHIM_STATUS_EVERY: a line on the state of the devices, every so many steps or seconds. Steps
 * are those that the program marks; until it marks one, lines come by time.
 *
 * There is no thread for it: allocations and steps check whether a line is due. A process that does
 * neither for a while prints nothing, and has nothing new to say. */
#ifndef MEMSHIM_SHIM_POLICY_STATUS_H
#define MEMSHIM_SHIM_POLICY_STATUS_H

#include <stdatomic.h>
#include <stdbool.h>

extern _Atomic bool ms_status_on;

/* A device is used for the first time: from here on lines are due, if the options ask for them. */
void ms_status_begin(void);

void ms_status_check_due(void);
void ms_status_step_due(void);

/* To be called when memory was handed out or a step began: prints the line if it is due. The caller
 * holds no lock of this library. */
static inline void ms_status_check(void)
{
    if (__builtin_expect(atomic_load_explicit(&ms_status_on, memory_order_relaxed), 0)) {
        ms_status_check_due();
    }
}
static inline void ms_status_step(void)
{
    if (__builtin_expect(atomic_load_explicit(&ms_status_on, memory_order_relaxed), 0)) {
        ms_status_step_due();
    }
}

#endif
