/* SPDX-License-Identifier: Apache-2.0 */
/* The gate by itself: what threads do between entering and leaving, and what its closer does
 * meanwhile, never happen together. With thread sanitizer, what each wrote is seen by the other. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "shim/driver/gate.h"

enum { THREADS = 4, CLOSINGS = 500 };
#define LIMIT_NS (20ull * 1000000000)

static uint64_t moved; /* written by the closer alone, while the gate is closed */
static atomic_bool over;
static atomic_int seen; /* threads that have been inside */

static void *work(void *looks)
{
    uint64_t count = 0;
    while (!atomic_load(&over)) {
        ms_gate_enter();
        uint64_t first = moved;
        if (count % 64 == 0) {
            nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
        }
        cr_assert_eq(moved, first);
        ms_gate_leave();
        atomic_fetch_add(&seen, count++ == 0);
    }
    *(uint64_t *)looks = count;
    return NULL;
}

Test(gate, nobody_is_inside_while_it_is_closed)
{
    pthread_t threads[THREADS];
    uint64_t looks[THREADS];
    for (int t = 0; t < THREADS; t++) {
        cr_assert_eq(pthread_create(&threads[t], NULL, work, &looks[t]), 0);
    }
    /* On a busy machine a new thread would else run only when all is over. */
    while (atomic_load(&seen) < THREADS) {
        sched_yield();
    }
    for (int i = 0; i < CLOSINGS; i++) {
        cr_assert(ms_gate_close(LIMIT_NS));
        moved++;
        ms_gate_open();
    }
    atomic_store(&over, true);
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        cr_assert_gt(looks[t], 0);
    }
    cr_assert_eq(moved, CLOSINGS);
}

Test(gate, gives_up_on_a_call_that_stays)
{
    pthread_t thread;
    uint64_t looks;
    ms_gate_enter();
    cr_assert_not(ms_gate_close(1000000));
    ms_gate_leave();
    cr_assert(ms_gate_close(LIMIT_NS));
    ms_gate_open();
    atomic_store(&over, true);
    cr_assert_eq(pthread_create(&thread, NULL, work, &looks), 0);
    pthread_join(thread, NULL);
}

Test(gate, classes_of_names)
{
    cr_assert_eq(ms_gate_class_of("cuMemcpyBatchAsync_v2_ptsz"), MS_GATE_GATED);
    cr_assert_eq(ms_gate_class_of("cuMemsetD8_v2_ptds"), MS_GATE_GATED);
    cr_assert_eq(ms_gate_class_of("cuLaunchKernel"), MS_GATE_WITHIN);
    cr_assert_eq(ms_gate_class_of("cuMemAlloc_v2"), MS_GATE_HARMLESS);
    cr_assert_eq(ms_gate_class_of("cuMemAlloc_w2"), MS_GATE_UNKNOWN);
    cr_assert_eq(ms_gate_class_of(""), MS_GATE_UNKNOWN);
}
