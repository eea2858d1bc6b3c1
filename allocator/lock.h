/* A mutex of four bytes on a futex: small enough to embed, and a forked child can simply reset it.
 *
 * Not recursive, not fair; a thread that finds it taken spins briefly, then sleeps. */
#ifndef MEMSHIM_ALLOCATOR_LOCK_H
#define MEMSHIM_ALLOCATOR_LOCK_H

#include <stdatomic.h>
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
    if (!atomic_compare_exchange_strong_explicit(&lock->word, &expected, 1, memory_order_acquire,
                                                 memory_order_relaxed)) {
        ms_lock_wait(lock);
    }
}

static inline void ms_lock_release(ms_lock_t *lock)
{
    if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2) {
        ms_lock_wake(lock);
    }
}

#endif
