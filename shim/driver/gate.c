/* SPDX-License-Identifier: Apache-2.0 */
/* Tracks the threads at the gate, closes it, and knows the driver's functions by name. */
#include "shim/driver/gate.h"

#include <errno.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocator/base/cancel.h"
#include "allocator/base/clock.h"
#include "allocator/base/locks/lock.h"
#include "shim/driver/hook.h"

#define NAME_MAX_CHARS 128u
#define YIELDS         50u    /* calls are short: most end before a nap would */
#define NAP_NS         20000u /* between two checks of calls in flight */
/* The least number of times that a thread's end runs its destructors. */
#define LINKS_MAX 3u

/* In the place of the null handle, a value that no handle has. */
const _Atomic uintptr_t ms_gate_nothing[MS_SEEN_SLOTS] = {[0] = 1};

_Thread_local struct ms_gate_thread ms_gate_thread = {.known = ms_gate_nothing};

static struct ms_gate_thread *threads MS_GUARDED_BY(*MS_LOCK(GATE));
static int watchers MS_GUARDED_BY(*MS_LOCK(GATE));
static _Atomic uint32_t closed; /* the futex word on which threads sleep */

static _Atomic bool refused;
static char refusal[NAME_MAX_CHARS + 128];

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_end_key;
static bool thread_ends_seen;

/* --- classes of names ------------------------------------------------------------------------- */

static const struct gate_name {
    const char *base;
    enum ms_gate_class class;
} names[] = {
#define MS_GATE(base, class) {#base, MS_GATE_##class},
#include "shim/tables/gate.def"
};

static int compare_names(const void *wanted, const void *entry)
{
    return strcmp(wanted, ((const struct gate_name *)entry)->base);
}

static const struct gate_name *find_name(const char *base)
{
    return bsearch(base, names, sizeof names / sizeof *names, sizeof *names, compare_names);
}

/* Removes the suffixes of exported names: _v<number>, _ptsz, _ptds. */
static void take_marks_off(char *name)
{
    char *mark = strrchr(name, '_');
    if (mark != NULL && (strcmp(mark, "_ptsz") == 0 || strcmp(mark, "_ptds") == 0)) {
        *mark = '\0';
        mark = strrchr(name, '_');
    }
    if (mark != NULL && mark[1] == 'v' && mark[2 + strspn(mark + 2, "0123456789")] == '\0') {
        *mark = '\0';
    }
}

enum ms_gate_class ms_gate_class_of(const char *name)
{
    char base[NAME_MAX_CHARS];
    (void)snprintf(base, sizeof base, "%s", name);
    take_marks_off(base);
    const struct gate_name *found = find_name(base);
    return found != NULL ? found->class : MS_GATE_UNKNOWN;
}

static void refuse(const char *text, const char *name)
{
    ms_lock_acquire(MS_LOCK(GATE));
    if (!atomic_load_explicit(&refused, memory_order_relaxed)) {
        (void)snprintf(refusal, sizeof refusal, text, name);
        atomic_store_explicit(&refused, true, memory_order_release);
    }
    ms_lock_release(MS_LOCK(GATE));
}

bool ms_gate_is_harmless(const char *name)
{
    /* Functions whose names say that they only query something will stay harmless in later
     * drivers. */
    return ms_gate_class_of(name) == MS_GATE_HARMLESS || strstr(name, "Get") != NULL;
}

void ms_gate_note_unknown(const char *name)
{
    refuse("the program uses the driver's %s, which memshim does not know", name);
}

const char *ms_gate_refusal(void)
{
    return atomic_load_explicit(&refused, memory_order_acquire) ? refusal : NULL;
}

/* --- threads ---------------------------------------------------------------------------------- */

static void unlink_locked(struct ms_gate_thread *thread)
{
    *thread->slot = thread->next;
    if (thread->next != NULL) {
        thread->next->slot = thread->slot;
    }
    thread->linked = false;
    atomic_store_explicit(&thread->known, ms_gate_nothing, memory_order_relaxed);
}

/* Unlinks the thread's block, which ends with the thread, even inside a call. Destructors that run
 * later may still call the driver: that links the block again, and then this runs again. */
static void thread_ended(void *thread)
{
    ms_lock_acquire(MS_LOCK(GATE));
    if (((struct ms_gate_thread *)thread)->linked) {
        unlink_locked(thread);
    }
    ms_lock_release(MS_LOCK(GATE));
}

static void prepare(void)
{
    thread_ends_seen = pthread_key_create(&thread_end_key, thread_ended) == 0;
}

static const _Atomic uintptr_t *known_locked(void) MS_REQUIRES(*MS_LOCK(GATE))
{
    return watchers != 0 || atomic_load_explicit(&closed, memory_order_relaxed) != 0
               ? ms_gate_nothing
               : ms_seen_slots;
}

static void publish_locked(void) MS_REQUIRES(*MS_LOCK(GATE))
{
    const _Atomic uintptr_t *known = known_locked();
    for (struct ms_gate_thread *thread = threads; thread != NULL; thread = thread->next) {
        atomic_store_explicit(&thread->known, known, memory_order_release);
    }
}

static void link_thread(struct ms_gate_thread *self)
{
    pthread_once(&once, prepare);
    if (!thread_ends_seen || self->links == LINKS_MAX ||
        pthread_setspecific(thread_end_key, self) != 0) {
        refuse("a thread's end could not be watched%s", "");
        return;
    }
    ms_lock_acquire(MS_LOCK(GATE));
    self->links++;
    self->linked = true;
    self->next = threads;
    self->slot = &threads;
    if (threads != NULL) {
        threads->slot = &self->next;
    }
    threads = self;
    atomic_store_explicit(&self->known, known_locked(), memory_order_relaxed);
    ms_lock_release(MS_LOCK(GATE));
}

static void futex(int operation, uint32_t value)
{
    (void)syscall(SYS_futex, &closed, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

void ms_gate_wait(void)
{
    struct ms_gate_thread *self = &ms_gate_thread;
    int error = errno;
    if (!self->linked) {
        link_thread(self);
    }
    while (atomic_load_explicit(&closed, memory_order_acquire) != 0 && !self->closer &&
           atomic_load_explicit(&self->calls, memory_order_relaxed) == 1) {
        ms_gate_leave();
        futex(FUTEX_WAIT, 1);
        (void)ms_gate_count();
    }
    errno = error;
}

/* --- closing ---------------------------------------------------------------------------------- */

static bool barrier(void)
{
    static _Atomic bool registered;
    if (!atomic_load_explicit(&registered, memory_order_relaxed)) {
        if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0) {
            return false;
        }
        atomic_store_explicit(&registered, true, memory_order_relaxed);
    }
    return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

static void set_closed(bool now)
{
    ms_gate_thread.closer = now;
    ms_lock_acquire(MS_LOCK(GATE));
    atomic_store_explicit(&closed, now, memory_order_seq_cst);
    publish_locked();
    ms_lock_release(MS_LOCK(GATE));
}

static bool any_in_flight(void)
{
    bool any = false;
    ms_lock_acquire(MS_LOCK(GATE));
    for (const struct ms_gate_thread *t = threads; t != NULL && !any; t = t->next) {
        any = atomic_load_explicit(&t->calls, memory_order_acquire) != 0;
    }
    ms_lock_release(MS_LOCK(GATE));
    return any;
}

static bool all_left(uint64_t timeout_ns)
{
    const uint64_t end = ms_clock_ns() + timeout_ns;
    for (unsigned tries = 0; any_in_flight(); tries++) {
        if (ms_clock_ns() >= end) {
            return false;
        }
        if (tries < YIELDS) {
            sched_yield();
        } else {
            ms_nap(NAP_NS);
        }
    }
    return true;
}

bool ms_gate_close(uint64_t timeout_ns)
{
    const int cancellation = ms_cancel_hold();
    set_closed(true);
    bool seen = barrier();
    if (!seen) {
        refuse("this system has no membarrier(2) for expedited private use%s", "");
    }
    /* A call that ended meanwhile may have noted a reason why the gate cannot stay closed. */
    bool stays = seen && all_left(timeout_ns) && ms_gate_refusal() == NULL;
    if (!stays) {
        ms_gate_open();
    }
    ms_cancel_let(cancellation);
    return stays;
}

void ms_gate_open(void)
{
    set_closed(false);
    futex(FUTEX_WAKE, INT32_MAX);
}

void ms_gate_watch_launches(bool watch)
{
    ms_lock_acquire(MS_LOCK(GATE));
    watchers += watch ? 1 : -1;
    publish_locked();
    ms_lock_release(MS_LOCK(GATE));
}

/* --- fork ------------------------------------------------------------------------------------- */

/* Only this thread goes on in the child, so its gate is open, even if another thread held it
 * closed. There is nobody to lock against. */
void ms_gate_fork_child(void) MS_NO_THREAD_SAFETY
{
    atomic_store(&closed, 0);
    threads = NULL;
    ms_gate_thread.linked = false;
    ms_gate_thread.closer = false;
    atomic_store_explicit(&ms_gate_thread.known, ms_gate_nothing, memory_order_relaxed);
}
