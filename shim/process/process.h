/* SPDX-License-Identifier: Apache-2.0 */
/* What this process is to memshim, and where it began. */
#ifndef MEMSHIM_SHIM_PROCESS_PROCESS_H
#define MEMSHIM_SHIM_PROCESS_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>

enum ms_process_state {
    MS_PROCESS_IDLE,   /* it has not used the driver */
    MS_PROCESS_SERVED, /* it uses the driver */
    MS_PROCESS_INERT   /* a fork child of one that did, or a probe of ours: every hook goes straight
                          to   the driver, nothing is said, nothing is written. For good. */
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

/* When the library is loaded, once: notes what the process begins with. Keeps no errno. */
void ms_process_begin(void);

/* The process is about to use the driver: once, its own options are read, and from now on its forks
 * are watched. False: it is inert. */
bool ms_process_serve(void);

void ms_process_make_inert(void);

/* Whether this is the process that ms_process_serve was called in, and no child that a bare clone
 * made, which no fork handler saw. */
bool ms_process_is_own(void);

/* False where the process began without a stderr: what has its number later is a file of the
 * program's. */
bool ms_process_had_stderr(void);

/* The folder in which the program started; empty where it is unknown. */
const char *ms_process_start_dir(void);

#endif
