#include "report/spin.h"

#include <time.h>

#include "report/cancel.h"

#define SPINS    200   /* about as long as packing takes */
#define SLEEP_NS 20000 /* what a holder that lost its processor is given */

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

void ms_spin_wait(ms_spin_t *lock)
{
    const struct timespec a_while = {.tv_nsec = SLEEP_NS};
    const int cancellation = ms_cancel_hold();

    do {
        for (int spin = 0; spin < SPINS && atomic_load_explicit(&lock->held, memory_order_relaxed);
             spin++) {
            pause_briefly();
        }
        if (atomic_load_explicit(&lock->held, memory_order_relaxed)) {
            (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &a_while, NULL);
        }
    } while (atomic_exchange_explicit(&lock->held, 1, memory_order_acquire));
    ms_cancel_let(cancellation);
}
