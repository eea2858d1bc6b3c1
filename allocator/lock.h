/* A mutex of four bytes on a futex: small enough to embed, and a forked child can simply reset it.
 *
 * Not recursive, not fair; a thread that finds it taken spins briefly, then sleeps. Letting go is a
 * plain store, which costs a third of a locked one: who goes to sleep just then may miss its call,
 * and therefore looks again after a while. */
#ifndef MEMSHIM_ALLOCATOR_LOCK_H
#define MEMSHIM_ALLOCATOR_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    _Atomic uint32_t word; /* 0 free, 1 held, 2 held and somebody sleeps */
} ms_lock_t;

void ms_lock_wait(ms_lock_t *lock);
void ms_lock_wake(ms_lock_t *lock);

static inline void ms_lock_reset(ms_lock_t *lock)
{
    atomic_store_explicit(&lock->word, 0, memory_order_release);
}

static inline void ms_lock_acquire(ms_lock_t *lock)
{
    uint32_t expected = 0;
    if (__builtin_expect(!atomic_compare_exchange_strong_explicit(
                             &lock->word, &expected, 1, memory_order_acquire, memory_order_relaxed),
                         0)) {
        ms_lock_wait(lock);
    }
}

/* False where somebody holds it. */
static inline bool ms_lock_try(ms_lock_t *lock)
{
    uint32_t expected = 0;
    return atomic_compare_exchange_strong_explicit(&lock->word, &expected, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

static inline void ms_lock_release(ms_lock_t *lock)
{
    const uint32_t word = atomic_load_explicit(&lock->word, memory_order_relaxed);
    atomic_store_explicit(&lock->word, 0, memory_order_release);
    if (__builtin_expect(word == 2, 0)) {
        ms_lock_wake(lock);
    }
}

#endif
