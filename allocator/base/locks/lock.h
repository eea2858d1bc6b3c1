/* SPDX-License-Identifier: Apache-2.0 */
/* A mutex of four bytes on a futex: small enough to embed, and a forked child can simply reset it.
 *
 * Not recursive, not fair. A thread that finds it taken polls for a while (lock.c), then sleeps.
 * Releasing is a plain store, which costs a third of a locked one. A thread that falls asleep just
 * then may miss the wake-up, so sleeps are short and the thread polls again.
 *
 * Each lock has its rank in the order of all locks (lock_rank.def). A build with MEMSHIM_CHECKS
 * aborts when a thread takes locks in another order, or calls the driver under a lock that forbids
 * it; other builds have no ranks. */
#ifndef MEMSHIM_ALLOCATOR_BASE_LOCKS_LOCK_H
#define MEMSHIM_ALLOCATOR_BASE_LOCKS_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/locks/lock_annotations.h"
#include "allocator/base/locks/lock_rank.h"

typedef struct MS_CAPABILITY("mutex") {
    _Atomic uint32_t word; /* 0 free, 1 held, 2 held and somebody sleeps */
#ifdef MEMSHIM_CHECKS
    enum ms_lock_rank rank;
#endif
} ms_lock_t;

/* The process-wide locks, by rank; elements of other ranks are not used. */
extern struct ms_one_lock {
    _Alignas(64) ms_lock_t lock;
} ms_locks[MS_RANK_COUNT];

#define MS_LOCK(name) (&ms_locks[MS_RANK_##name].lock)

#ifdef MEMSHIM_CHECKS
#    define MS_LINE_TEXT(line) #    line
#    define MS_PLACE_AT(line)  __FILE__ ":" MS_LINE_TEXT(line)
#    define MS_PLACE           MS_PLACE_AT(__LINE__)

/* In lock_check.c, called before the lock is taken, after that, and before it is released. */
void ms_lock_check(const ms_lock_t *lock, const char *place);
void ms_lock_note(const ms_lock_t *lock, const char *place);
void ms_lock_forget(const ms_lock_t *lock);
/* Called before a driver call, and before a fork. */
void ms_lock_check_driver(const char *function);
void ms_lock_check_fork(void);
#else
#    define MS_PLACE NULL

static inline void ms_lock_check(const ms_lock_t *lock, const char *place)
{
    (void)lock;
    (void)place;
}

static inline void ms_lock_note(const ms_lock_t *lock, const char *place)
{
    (void)lock;
    (void)place;
}

static inline void ms_lock_forget(const ms_lock_t *lock)
{
    (void)lock;
}

static inline void ms_lock_check_driver(const char *function)
{
    (void)function;
}

static inline void ms_lock_check_fork(void)
{
}
#endif

/* A free lock of this rank: as an initializer, and for a lock in uninitialized memory. */
#ifdef MEMSHIM_CHECKS
#    define MS_LOCK_INIT(name)     \
        {                          \
            .rank = MS_RANK_##name \
        }
#else
#    define MS_LOCK_INIT(name) \
        {                      \
            0                  \
        }
#endif

void ms_lock_wait(ms_lock_t *lock);
void ms_lock_wake(ms_lock_t *lock);

static inline void ms_lock_init(ms_lock_t *lock, enum ms_lock_rank rank)
{
#ifdef MEMSHIM_CHECKS
    lock->rank = rank;
#endif
    (void)rank;
    atomic_store_explicit(&lock->word, 0, memory_order_release);
}

/* Makes the lock free, whoever held it: in a forked child. */
static inline void ms_lock_reset(ms_lock_t *lock)
{
    atomic_store_explicit(&lock->word, 0, memory_order_release);
}

/* take and let are for fork(), which holds all locks at once. All others call ms_lock_acquire,
 * ms_lock_try and ms_lock_release. */
static inline void ms_lock_take(ms_lock_t *lock)
{
    uint32_t expected = 0;
    if (__builtin_expect(!atomic_compare_exchange_strong_explicit(
                             &lock->word, &expected, 1, memory_order_acquire, memory_order_relaxed),
                         0)) {
        ms_lock_wait(lock);
    }
}

static inline void ms_lock_let(ms_lock_t *lock)
{
    const uint32_t word = atomic_load_explicit(&lock->word, memory_order_relaxed);
    atomic_store_explicit(&lock->word, 0, memory_order_release);
    if (__builtin_expect(word == 2, 0)) {
        ms_lock_wake(lock);
    }
}

/* These three are the lock. Below them is the pthread mutex, which the checker does not know. */
static inline void ms_lock_acquire_at(ms_lock_t *lock, const char *place)
    MS_ACQUIRE(*lock) MS_NO_THREAD_SAFETY
{
    ms_lock_check(lock, place);
    ms_lock_take(lock);
    ms_lock_note(lock, place);
}

static inline bool ms_lock_try_at(ms_lock_t *lock, const char *place)
    MS_TRY_ACQUIRE(true, *lock) MS_NO_THREAD_SAFETY
{
    uint32_t expected = 0;
    bool taken = atomic_compare_exchange_strong_explicit(
        &lock->word, &expected, 1, memory_order_acquire, memory_order_relaxed);
    if (taken) {
        ms_lock_note(lock, place);
    }
    return taken;
}

#define ms_lock_acquire(lock) ms_lock_acquire_at((lock), MS_PLACE)

/* False: another thread holds it. A try never waits, so its rank is not checked. */
#define ms_lock_try(lock) ms_lock_try_at((lock), MS_PLACE)

static inline void ms_lock_release(ms_lock_t *lock) MS_RELEASE(*lock) MS_NO_THREAD_SAFETY
{
    ms_lock_forget(lock);
    ms_lock_let(lock);
}

#endif
