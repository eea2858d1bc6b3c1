/* SPDX-License-Identifier: Apache-2.0 */
/* The slow paths of the lock: sleeping and waking. lock.h has the rest. */
#include "allocator/base/locks/lock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    SPINS = 64,        /* about a microsecond: what a hold of the state lock costs at most */
    SLEEP_NS = 1000000 /* at most: see lock.h */
};

const struct ms_lock_rank_row ms_lock_rank_rows[MS_RANK_COUNT] = {
    [MS_RANK_NONE] = {.name = "no rank"},
#define OVER                        true
#define NEVER                       false
#define TAKEN                       true
#define RESET                       false
#define MS_RANK(name, driver, fork) [MS_RANK_##name] = {#name, driver, fork},
#include "allocator/base/locks/lock_rank.def"
#undef MS_RANK
};

struct ms_one_lock ms_locks[MS_RANK_COUNT] = {
#define MS_RANK(name, driver, fork) [MS_RANK_##name] = {.lock = MS_LOCK_INIT(name)},
#include "allocator/base/locks/lock_rank.def"
#undef MS_RANK
};

static void futex(ms_lock_t *lock, int operation, uint32_t value)
{
    /* Both uses are allowed to return early for any reason: the callers look at the word again. */
    const struct timespec most = {.tv_nsec = SLEEP_NS};
    (void)syscall(SYS_futex, &lock->word, operation, value, &most, NULL, 0);
}

void ms_lock_wait(ms_lock_t *lock)
{
    for (int spin = 0; spin < SPINS; spin++) {
        uint32_t expected = 0;
        if (atomic_compare_exchange_weak_explicit(&lock->word, &expected, 1, memory_order_acquire,
                                                  memory_order_relaxed)) {
            return;
        }
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    /* From here on the word says 2, also for the new holder: it cannot know whether others sleep.
     */
    while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0) {
        futex(lock, FUTEX_WAIT_PRIVATE, 2);
    }
}

void ms_lock_wake(ms_lock_t *lock)
{
    futex(lock, FUTEX_WAKE_PRIVATE, 1);
}
