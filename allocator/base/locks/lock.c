/* SPDX-License-Identifier: Apache-2.0 */
/* The slow paths of the lock: sleeping and waking. lock.h has the rest. */
#include "allocator/base/locks/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allocator/base/clock.h"

/* Sleeping is expensive: it costs two system calls, and each woken thread has to wake the next one,
 * so threads that slept once go on sleeping in turn. Packing the trace holds the lock for some ten
 * microseconds, writing its digest for longer. So a thread polls for longer than that before it
 * sleeps. It polls ever less often, which leaves the lock's cache line, and mostly the lock, with
 * its holder. */
enum {
    SPIN_NS = 200000,   /* then it sleeps */
    MOST_PAUSES = 512,  /* between two polls: 10 to 30 microseconds */
    SLEEP_NS = 1000000, /* at most: see lock.h */
    UNKNOWN = 0,
    ALONE = 1,
    MANY = 2
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
    /* Either call may return early for any reason: the callers read the word again. */
    const struct timespec most = {.tv_nsec = SLEEP_NS};
    (void)syscall(SYS_futex, &lock->word, operation, value, &most, NULL, 0);
}

/* Whether the holder can run while this thread polls. */
static bool others_run(void)
{
    static _Atomic int cores = UNKNOWN;
    int known = atomic_load_explicit(&cores, memory_order_relaxed);
    if (known == UNKNOWN) {
        const int saved = errno;
        cpu_set_t set;
        const bool one = sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) == 1;
        known = one ? ALONE : MANY;
        atomic_store_explicit(&cores, known, memory_order_relaxed);
        errno = saved;
    }
    return known == MANY;
}

static void pause_for(int pauses)
{
    for (int i = 0; i < pauses; i++) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("isb");
#endif
    }
}

/* Polls until it can take the lock. False: it polled for long enough. */
static bool spin(ms_lock_t *lock)
{
    const uint64_t begin_ns = ms_clock_ns();
    int pauses = 4;
    do {
        uint32_t expected = 0;
        pause_for(pauses);
        if (atomic_load_explicit(&lock->word, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_weak_explicit(&lock->word, &expected, 1, memory_order_acquire,
                                                  memory_order_relaxed)) {
            return true;
        }
        pauses = pauses < MOST_PAUSES ? pauses * 2 : pauses;
    } while (ms_clock_ns() - begin_ns < SPIN_NS);
    return false;
}

void ms_lock_wait(ms_lock_t *lock)
{
    if (others_run() && spin(lock)) {
        return;
    }
    /* From here on the word is 2, for the new holder too: it cannot know whether others sleep. */
    while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0) {
        futex(lock, FUTEX_WAIT_PRIVATE, 2);
    }
}

void ms_lock_wake(ms_lock_t *lock)
{
    futex(lock, FUTEX_WAKE_PRIVATE, 1);
}
