/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a thread is inside memshim. Then whatever the driver or a library calls in turn goes
 * straight to the driver. */
#ifndef MEMSHIM_SHIM_PROCESS_GUARD_H
#define MEMSHIM_SHIM_PROCESS_GUARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/process/process.h"

/* Initial-exec: a preloaded library's thread-local storage exists from the start, so that access
 * takes one instruction and never allocates. */
extern _Thread_local __attribute__((tls_model("initial-exec"))) struct ms_guard {
    const void *caller; /* null: not inside */
    bool inside;
    /* The caller's stack pointer and frame pointer after the call; sp 0: unknown. Stack walks begin
     * there, and so need not step out of memshim's own frames. */
    uintptr_t sp, bp;
} ms_guard;

/* The return address of the intercepted call, which lies in the library that made it. Null outside
 * a call. */
const void *ms_caller(void);

/* The guard of this thread. Each trampoline takes it, and so does work that no trampoline begins
 * (reports of a framework, memshim.h, threads of our own). enter returns false if the thread is
 * inside already, or the process is inert; then leave must not be called. */
static inline bool ms_guard_enter(const void *caller)
{
    if (ms_guard.inside || (__builtin_expect(!ms_process_served(), 0) && !ms_process_serve())) {
        return false;
    }
    /* Set first: what a signal handler allocates from here on does not belong to this call, and
     * must not put its own caller into the other members. */
    ms_guard.inside = true;
    atomic_signal_fence(memory_order_seq_cst);
    ms_guard.caller = caller;
    ms_guard.sp = 0;
    return true;
}

/* The same, called in the intercepted function itself, whose frame has all data of its caller. */
static inline __attribute__((always_inline)) bool ms_guard_enter_here(void)
{
    if (!ms_guard_enter(__builtin_return_address(0))) {
        return false;
    }
#if defined(__x86_64__)
    ms_guard.sp = (uintptr_t)__builtin_dwarf_cfa();
    ms_guard.bp = *(const uintptr_t *)__builtin_frame_address(0);
#endif
    return true;
}

static inline void ms_guard_leave(void)
{
    ms_guard.caller = NULL;
    atomic_signal_fence(memory_order_seq_cst);
    ms_guard.inside = false;
}

#endif
