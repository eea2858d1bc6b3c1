/* SPDX-License-Identifier: Apache-2.0 */
/* Before fork(), takes all locks that the child needs to find free, in their order. Afterwards, in
 * the child of a process that used the driver, makes memshim silent and inactive. */
#include "shim/process/fork.h"

#include <pthread.h>
#include <stdatomic.h>

#include "allocator/base/cancel.h"
#include "shim/process/guard.h"
#include "shim/process/session.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool registered;
static atomic_bool watched;
/* Of this thread, which forks: the state of the process may change between the handlers. */
static _Thread_local __attribute__((tls_model("initial-exec"))) bool holds;
static struct ms_fork_part *_Atomic parts;

void ms_fork_join(struct ms_fork_part *part)
{
    part->next = atomic_load(&parts);
    while (!atomic_compare_exchange_weak(&parts, &part->next, part)) {
    }
}

/* False in an inert process, and if a signal handler forks inside one of our calls: then this
 * thread cannot wait for locks that it may hold itself. */
static bool concerns_us(void)
{
    return atomic_load(&watched) && !ms_process_inert() && !ms_guard.inside;
}

static void all_of(enum ms_lock_rank rank, void (*act)(ms_lock_t *lock))
{
    act(&ms_locks[rank].lock);
    for (const struct ms_fork_part *part = atomic_load(&parts); part != NULL; part = part->next) {
        if (part->locks != NULL) {
            part->locks(rank, act);
        }
    }
}

static void prepare(void)
{
    holds = concerns_us();
    if (!holds) {
        return;
    }
    ms_lock_check_fork();
    for (enum ms_lock_rank rank = MS_RANK_NONE + 1; rank < MS_RANK_COUNT; rank++) {
        if (ms_lock_rank_rows[rank].at_fork) {
            all_of(rank, ms_lock_take);
        }
    }
}

static void in_parent(void)
{
    if (!holds) {
        return;
    }
    for (enum ms_lock_rank rank = MS_RANK_COUNT - 1; rank > MS_RANK_NONE; rank--) {
        if (ms_lock_rank_rows[rank].at_fork) {
            all_of(rank, ms_lock_let);
        }
    }
}

/* The driver does not work in a child of a process that has initialized it, and the trace belongs
 * to the parent, so the child records nothing. A program that it execs starts anew. */
static void leave_alone(void)
{
    const int cancellation = ms_cancel_hold();
    ms_process_make_inert();
    ms_session_fork_child();
    for (const struct ms_fork_part *part = atomic_load(&parts); part != NULL; part = part->next) {
        if (part->in_child != NULL) {
            part->in_child();
        }
    }
    ms_cancel_let(cancellation);
}

/* The child has only this thread, so no other thread holds a lock. Forks may not be watched yet;
 * then, too, another thread may have held one. */
static void in_child(void)
{
    if (ms_process_inert()) {
        return;
    }
    for (enum ms_lock_rank rank = MS_RANK_NONE + 1; rank < MS_RANK_COUNT; rank++) {
        all_of(rank, ms_lock_reset);
    }
    if (ms_process_served()) {
        leave_alone();
    }
}

static void set_up(void)
{
    registered = pthread_atfork(prepare, in_parent, in_child) == 0;
}

void ms_fork_begin(void)
{
    (void)pthread_once(&once, set_up);
}

bool ms_fork_watch(void)
{
    ms_fork_begin();
    atomic_store(&watched, true);
    return registered;
}
