/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread has begun and must end, and what is no lock: a context in use, captures held off.
 * A thread that owes such a thing, or holds a lock, must not be cancelled in a call of the driver
 * (cancel.h). Builds with MEMSHIM_CHECKS abort at a call in which it could be; in others nothing is
 * counted. */
#ifndef MEMSHIM_ALLOCATOR_BASE_LOCKS_DEBT_H
#define MEMSHIM_ALLOCATOR_BASE_LOCKS_DEBT_H

#ifdef MEMSHIM_CHECKS
/* In lock_check.c: +1 as it begins, -1 as it has ended. */
void ms_debt_note(int more);
/* Called before a call of the driver. Not before those of a dry device, where nothing is waited
 * for. */
void ms_debt_check(const char *function);
#else
static inline void ms_debt_note(int more)
{
    (void)more;
}

static inline void ms_debt_check(const char *function)
{
    (void)function;
}
#endif

#endif
