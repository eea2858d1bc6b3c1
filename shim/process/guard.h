/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a thread is inside memshim: then whatever the driver or a library calls in turn goes
 * straight to the driver. */
#ifndef MEMSHIM_SHIM_PROCESS_GUARD_H
#define MEMSHIM_SHIM_PROCESS_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#include "shim/process/process.h"

/* Initial-exec: a preloaded library's thread-local block is there from the start, so that access is
 * one instruction and never allocates. */
extern _Thread_local __attribute__((tls_model("initial-exec"))) struct ms_guard {
    const void *caller; /* null: not inside */
    bool inside;
} ms_guard;

/* Where the intercepted call returns to: the library that made it. Null outside a call. */
const void *ms_caller(void);

/* The guard of this thread: taken by each trampoline, and for work that no trampoline begins
 * (reports of a framework, memshim.h, a thread of our own). enter is false where the thread is
 * inside already, or the process is inert; then leave must not be called. */
static inline bool ms_guard_enter(const void *caller)
{
    if (ms_guard.inside || (__builtin_expect(!ms_process_served(), 0) && !ms_process_serve())) {
        return false;
    }
    ms_guard.inside = true;
    ms_guard.caller = caller;
    return true;
}

static inline void ms_guard_leave(void)
{
    ms_guard.inside = false;
    ms_guard.caller = NULL;
}

#endif
