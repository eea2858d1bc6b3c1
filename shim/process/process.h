/* SPDX-License-Identifier: Apache-2.0 */
/* The state of this process for memshim, and where it began. */
#ifndef MEMSHIM_SHIM_PROCESS_PROCESS_H
#define MEMSHIM_SHIM_PROCESS_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>

enum ms_process_state {
    MS_PROCESS_IDLE,   /* it has not used the driver */
    MS_PROCESS_SERVED, /* it uses the driver */
    MS_PROCESS_INERT   /* a fork child of a process that used it, or a probe of ours: every hook
                          goes straight to the driver, nothing is logged or written. For good. */
};
extern _Atomic int ms_process_state; /* enum ms_process_state */

static inline bool ms_process_inert(void)
{
    return atomic_load_explicit(&ms_process_state, memory_order_relaxed) == MS_PROCESS_INERT;
}

static inline bool ms_process_served(void)
{
    return atomic_load_explicit(&ms_process_state, memory_order_relaxed) == MS_PROCESS_SERVED;
}

/* Called once, when the library is loaded: notes the state in which the process begins. May change
 * errno. */
void ms_process_begin(void);

/* The process is about to use the driver. Once, this reads its options and starts to watch its
 * forks. False: it is inert. */
bool ms_process_serve(void);

void ms_process_make_inert(void);

/* Whether this is the process in which ms_process_serve was called. False in a child of a bare
 * clone, which runs no fork handlers. */
bool ms_process_is_own(void);

/* Whether descriptor 2 is where lines for the user go. False if the process began without a stderr,
 * or if the program closed it and a socket, or a file for reading and writing, has its number now:
 * that holds the program's data. */
bool ms_process_has_stderr(void);

/* The folder in which the program started; empty if unknown. */
const char *ms_process_start_dir(void);

#endif
