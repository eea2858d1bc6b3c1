/* SPDX-License-Identifier: Apache-2.0 */
/* The gate: calls that queue work on a device pass it, and wait at it while contents move.
 *
 * gate.def says, function by function, which driver functions those are. Each thread counts its
 * calls in flight in a block of its own, without atomic instructions or barriers. The thread that
 * closes the gate pays for both (membarrier(2), PRIVATE_EXPEDITED), and then sees every call that
 * began before. */
#ifndef MEMSHIM_SHIM_DRIVER_GATE_H
#define MEMSHIM_SHIM_DRIVER_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/driver/seen.h"

/* gate.def's class for each base name of the driver's functions. */
enum ms_gate_class {
    MS_GATE_HARMLESS, /* queues nothing that touches memory of the pool */
    MS_GATE_GATED,    /* passes the gate in its trampoline */
    MS_GATE_WITHIN,   /* only the driver call inside its serving function passes the gate */
    MS_GATE_UNKNOWN   /* not in the table */
};

/* One for each thread, in its thread-local storage; in a list from the thread's first call until
 * its end. */
struct ms_gate_thread {
    _Atomic int32_t calls; /* in flight; more than one if a driver's callback calls back */
    bool linked;
    bool closer; /* this thread holds the gate closed */
    uint8_t links;
    /* ms_seen_slots while launches of functions in that table need no check; otherwise
     * ms_gate_nothing. */
    const _Atomic uintptr_t *_Atomic known;
    struct ms_gate_thread *next, **slot;
};
_Static_assert(offsetof(struct ms_gate_thread, calls) == 0, "the assembly below reads it there");
_Static_assert(offsetof(struct ms_gate_thread, known) == 8, "the assembly below reads it there");

extern _Thread_local
    __attribute__((tls_model("initial-exec"))) struct ms_gate_thread ms_gate_thread;
extern const _Atomic uintptr_t ms_gate_nothing[MS_SEEN_SLOTS]; /* contains no function */

/* Count one call. ms_gate_count returns the table of functions that this thread may launch without
 * a check; ms_gate_count_launch returns whether `function` is in it. ms_gate_leave ends the count.
 *
 * One instruction changes the count, so a signal handler runs before or after it. In the portable
 * form below, a handler restores the count that it found. The thread sanitizer does not understand
 * assembly. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#    define MS_LAUNCH_TRAMPOLINES 1 /* launch_trampolines.c does the same */
static inline const _Atomic uintptr_t *ms_gate_count(void)
{
    const _Atomic uintptr_t *known;
    __asm__ volatile("movq ms_gate_thread@gottpoff(%%rip), %0\n\t"
                     "incl %%fs:(%0)\n\t"
                     "movq %%fs:8(%0), %0"
                     : "=&r"(known)
                     :
                     : "memory", "cc");
    return known;
}

static inline void ms_gate_leave(void)
{
    uintptr_t at;
    __asm__ volatile("movq ms_gate_thread@gottpoff(%%rip), %0\n\t"
                     "decl %%fs:(%0)"
                     : "=&r"(at)
                     :
                     : "memory", "cc");
}
#else
static inline const _Atomic uintptr_t *ms_gate_count(void)
{
    struct ms_gate_thread *self = &ms_gate_thread;
    int32_t calls = atomic_load_explicit(&self->calls, memory_order_relaxed);
    atomic_store_explicit(&self->calls, calls + 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    return atomic_load_explicit(&self->known, memory_order_acquire);
}

static inline bool ms_gate_count_launch(const void *function)
{
    const _Atomic uintptr_t *home = &ms_gate_count()[ms_seen_home(function)];
    return atomic_load_explicit(home, memory_order_relaxed) == (uintptr_t)function;
}

static inline void ms_gate_leave(void)
{
    struct ms_gate_thread *self = &ms_gate_thread;
    int32_t calls = atomic_load_explicit(&self->calls, memory_order_relaxed);
    atomic_store_explicit(&self->calls, calls - 1, memory_order_release);
}
#endif

/* Called for a counted call that may not go on at once. Registers its thread, and waits, uncounted
 * and asleep, while the gate is closed. A call nested in another call of its thread does not wait,
 * because the closing thread waits for the outer one. */
void ms_gate_wait(void);

/* Passes the gate. Each enter needs one ms_gate_leave. */
static inline void ms_gate_enter(void)
{
    if (__builtin_expect(ms_gate_count() == ms_gate_nothing, 0)) {
        ms_gate_wait();
    }
}

/* MS_GATED: makes one driver call between enter and leave. */
static inline int ms_gate_left(int result)
{
    ms_gate_leave();
    return result;
}
#define MS_GATED(call) (ms_gate_enter(), (CUresult)ms_gate_left(call))

/* Closes the gate for all other threads, and returns true once no call is in flight. False, and the
 * gate is open: calls were still in flight after timeout_ns, or the system cannot tell. One thread
 * at a time, which must not be inside a counted call. */
bool ms_gate_close(uint64_t timeout_ns);
void ms_gate_open(void);

/* While anybody watches, every launch passes through the serving functions. Counted: each true
 * needs one false. */
void ms_gate_watch_launches(bool watch);

/* The class of a name as passed to the driver's resolver or to the loader, with or without the
 * suffixes for version and flavour. */
enum ms_gate_class ms_gate_class_of(const char *name);

/* Whether a program may get a function of that name without a hook. */
bool ms_gate_is_harmless(const char *name);

/* The program calls this function without a hook, now or later: the gate is never closed again. */
void ms_gate_note_unknown(const char *name);

/* Why the gate cannot be closed in this process, as the end of a sentence ("this system has no
 * ..."); null if it can. A reason never changes, nor does its text. */
const char *ms_gate_refusal(void);

/* To be called in a forked child. */
void ms_gate_fork_child(void);

#endif
