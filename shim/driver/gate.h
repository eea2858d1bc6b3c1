/* SPDX-License-Identifier: Apache-2.0 */
/* The gate: calls that queue work on a device pass it, and wait at it while contents move.
 *
 * Which driver functions those are is said in gate.def, function by function. A call is counted in
 * flight by its thread, in the thread's own block, with no atomic instruction and no barrier:
 * whoever closes the gate pays for both (membarrier(2), PRIVATE_EXPEDITED), and then sees every
 * call that began before. */
#ifndef MEMSHIM_SHIM_DRIVER_GATE_H
#define MEMSHIM_SHIM_DRIVER_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/driver/seen.h"

/* What gate.def says of each base name of the driver's functions. */
enum ms_gate_class {
    MS_GATE_HARMLESS, /* queues nothing that touches memory of the pool's */
    MS_GATE_GATED,    /* passes the gate in its trampoline */
    MS_GATE_WITHIN,   /* its serving function takes the driver's call alone through the gate */
    MS_GATE_UNKNOWN   /* not in the table */
};

/* One for each thread, in its thread-local block; linked into a list from its first call on until
 * the thread ends. */
struct ms_gate_thread {
    _Atomic int32_t calls; /* in flight: more than one where a driver's callback calls back */
    bool linked;
    bool closer; /* holds the gate closed itself */
    uint8_t links;
    /* ms_seen_slots while a launch of a function that is seen there needs no look, and else
     * ms_gate_nothing. */
    const _Atomic uintptr_t *_Atomic known;
    struct ms_gate_thread *next, **slot;
};
_Static_assert(offsetof(struct ms_gate_thread, calls) == 0, "the assembly below reads it there");
_Static_assert(offsetof(struct ms_gate_thread, known) == 8, "the assembly below reads it there");

extern _Thread_local
    __attribute__((tls_model("initial-exec"))) struct ms_gate_thread ms_gate_thread;
extern const _Atomic uintptr_t ms_gate_nothing[MS_SEEN_SLOTS]; /* no function */

/* Counts one call: ms_gate_count answers what its thread may launch without a look, and
 * ms_gate_count_launch whether this function is among that. ms_gate_leave uncounts it.
 *
 * One instruction changes the count, so that a signal's handler finds it before or after; elsewhere
 * a handler restores what it found. Thread sanitizer does not see into assembly. */
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

/* What a counted call does that may not go on at once: makes its thread known, and waits, uncounted
 * and asleep, while the gate is closed. A call from inside another one of its thread does not wait:
 * that one is waited for. */
void ms_gate_wait(void);

/* Passes the gate; each call of it is ended by ms_gate_leave. */
static inline void ms_gate_enter(void)
{
    if (__builtin_expect(ms_gate_count() == ms_gate_nothing, 0)) {
        ms_gate_wait();
    }
}

/* One call of the driver's, evaluated between enter and leave. */
static inline int ms_gate_left(int result)
{
    ms_gate_leave();
    return result;
}
#define MS_GATED(call) (ms_gate_enter(), (CUresult)ms_gate_left(call))

/* Closes the gate for all threads but this one and returns true once no call is in flight; false,
 * and the gate open, where that is not so within timeout_ns, or where the system cannot say. One
 * thread at a time, and none that is inside a counted call. */
bool ms_gate_close(uint64_t timeout_ns);
void ms_gate_open(void);

/* While anybody watches, every launch goes past the serving functions. Counted: one false for each
 * true. */
void ms_gate_watch_launches(bool watch);

/* The class of a name as the driver's resolver or the loader is asked for it, with or without the
 * marks of its version and flavour. */
enum ms_gate_class ms_gate_class_of(const char *name);

/* Whether a function of that name may go out without a hook in front of it. */
bool ms_gate_is_harmless(const char *name);

/* The program calls this function, or may from here on, and nothing stands in front of it: the gate
 * is never closed again. */
void ms_gate_note_unknown(const char *name);

/* Why the gate cannot be closed in this process, as a sentence's end ("this system has no ...");
 * null where it can. Once given it stays, and so does the text. */
const char *ms_gate_refusal(void);

/* In a forked child. */
void ms_gate_fork_child(void);

#endif
