/* A lock for holds of some tens of instructions, now and then some microseconds: released by one
 * plain store, which waits for nothing, where a mutex of the system's must look for sleepers. Who
 * finds it taken spins, then sleeps for short whiles, so that a holder that was preempted gets the
 * processor back whatever its priority. Not recursive, not fair. */
#ifndef MEMSHIM_REPORT_SPIN_H
#define MEMSHIM_REPORT_SPIN_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct {
    _Atomic uint32_t held;
} ms_spin_t;

void ms_spin_wait(ms_spin_t *lock);

static inline void ms_spin_acquire(ms_spin_t *lock)
{
    if (__builtin_expect(atomic_exchange_explicit(&lock->held, 1, memory_order_acquire) != 0, 0)) {
        ms_spin_wait(lock);
    }
}

static inline void ms_spin_release(ms_spin_t *lock)
{
    atomic_store_explicit(&lock->held, 0, memory_order_release);
}

#endif
