/* SPDX-License-Identifier: Apache-2.0 */
/* MEMSHIM_STATUS_EVERY: a line on how the devices stand, every so many steps or seconds. Steps are
 * those that the program tells; until it tells one, lines come by time.
 *
 * No thread of its own: it is checked where memory is handed out and where a step begins. A process
 * that does neither for a while says nothing meanwhile, and has nothing new to say. */
#ifndef MEMSHIM_SHIM_POLICY_STATUS_H
#define MEMSHIM_SHIM_POLICY_STATUS_H

#include <stdatomic.h>
#include <stdbool.h>

extern _Atomic bool ms_status_on;

/* A device is used for the first time: from here on lines are due, where they are asked for. */
void ms_status_begin(void);

void ms_status_check_due(void);
void ms_status_step_due(void);

/* Memory was handed out, or a step began: says the line where it is due. No lock of this library is
 * held. */
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
