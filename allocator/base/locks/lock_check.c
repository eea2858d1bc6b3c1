/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the order in which locks are taken, in builds with MEMSHIM_CHECKS only. It writes
 * violations to standard error, and then ends the process. */
#include "allocator/base/locks/lock.h"

#ifdef MEMSHIM_CHECKS

#    include "allocator/base/assert.h"
#    include "allocator/base/cancel.h"
#    include "allocator/base/locks/debt.h"

/* More at once than any thread needs. */
#    define HELD_MAX 12

struct held_lock {
    const ms_lock_t *lock;
    const char *place;
};

static _Thread_local struct {
    struct held_lock at[HELD_MAX];
    unsigned count;
    int debts;
} held __attribute__((tls_model("initial-exec")));

/* Prints the locks that this thread holds, and ends the process. */
_Noreturn static void fail(void)
{
    for (unsigned i = held.count; i-- > 0;) {
        ms_check_say("memshim:   holds %s, taken at %s\n",
                     ms_lock_rank_rows[held.at[i].lock->rank].name, held.at[i].place);
    }
    ms_check_end();
}

void ms_lock_check(const ms_lock_t *lock, const char *place)
{
    if (lock->rank == MS_RANK_NONE) {
        ms_check_say("memshim: lock order: a lock without a rank is taken at %s\n", place);
        fail();
    }
    for (unsigned i = 0; i < held.count; i++) {
        if (held.at[i].lock->rank >= lock->rank) {
            ms_check_say("memshim: lock order: %s is taken at %s by a thread that holds %s\n",
                         ms_lock_rank_rows[lock->rank].name, place,
                         ms_lock_rank_rows[held.at[i].lock->rank].name);
            fail();
        }
    }
}

void ms_lock_note(const ms_lock_t *lock, const char *place)
{
    if (held.count == HELD_MAX) {
        ms_check_say("memshim: lock order: more than %d locks are held at %s\n", HELD_MAX, place);
        fail();
    }
    held.at[held.count++] = (struct held_lock){lock, place};
}

void ms_lock_forget(const ms_lock_t *lock)
{
    for (unsigned i = held.count; i-- > 0;) {
        if (held.at[i].lock == lock) {
            held.count--;
            for (; i < held.count; i++) {
                held.at[i] = held.at[i + 1];
            }
            return;
        }
    }
    ms_check_say("memshim: lock order: %s is let go by a thread that does not hold it\n",
                 ms_lock_rank_rows[lock->rank].name);
    fail();
}

void ms_lock_check_driver(const char *function)
{
    for (unsigned i = 0; i < held.count; i++) {
        if (!ms_lock_rank_rows[held.at[i].lock->rank].over_driver) {
            ms_check_say(
                "memshim: lock order: %s of the driver is called by a thread that holds %s\n",
                function, ms_lock_rank_rows[held.at[i].lock->rank].name);
            fail();
        }
    }
}

void ms_debt_check(const char *function)
{
    if (held.count != 0 || held.debts != 0) {
        const int cancellation = ms_cancel_hold();
        ms_cancel_let(cancellation);
        if (cancellation == PTHREAD_CANCEL_ENABLE) {
            ms_check_say("memshim: lock order: a thread that may be cancelled calls %s of the "
                         "driver, and holds locks (%u), uses and captures (%d)\n",
                         function, held.count, held.debts);
            fail();
        }
    }
}

void ms_debt_note(int more)
{
    held.debts += more;
}

void ms_lock_check_fork(void)
{
    for (unsigned i = 0; i < held.count; i++) {
        if (ms_lock_rank_rows[held.at[i].lock->rank].at_fork) {
            ms_check_say("memshim: lock order: a thread forks that holds %s\n",
                         ms_lock_rank_rows[held.at[i].lock->rank].name);
            fail();
        }
    }
}

#endif
