/* SPDX-License-Identifier: Apache-2.0 */
/* A training whose truth is known: each step works in a buffer of its own; for the first WARM steps
 * a cache grows; from the step named by the argument on a list keeps one block more each step
 * (none: 0). With the argument "queue" no list does: each step's input is freed some steps later,
 * ever more of them from step to step. With "longer", a history is made anew in every second step,
 * by a block longer. At the end it asks for more than the device has. */
#include <string.h>

#define MEMSHIM_WEAK
#include "driver.h"
#include "say.h"
#include "shim/memshim.h"

enum { STEPS = 40, WARM = 10 };
#define LEAK_BYTES  (64 * KIB)
#define CACHE_BYTES (256 * KIB)
#define WORK_BYTES  (8 * MIB)

static struct driver cu;

static __attribute__((noinline)) CUdeviceptr keep_in_list(void)
{
    CUdeviceptr block;
    MUST(cu.cuMemAlloc(&block, LEAK_BYTES));
    return block;
}

static __attribute__((noinline)) CUdeviceptr warm_up(void)
{
    CUdeviceptr block;
    MUST(cu.cuMemAlloc(&block, CACHE_BYTES));
    return block;
}

static __attribute__((noinline)) void work(int step)
{
    CUdeviceptr block;
    MUST(cu.cuMemAlloc(&block, WORK_BYTES + (size_t)(step % 3) * MIB));
    MUST(cu.cuMemFree(block));
}

/* As many inputs stay as a host would be ahead of its device. */
static __attribute__((noinline)) void queue_input(int step)
{
    static CUdeviceptr inputs[STEPS];
    static int freed;

    MUST(cu.cuMemAlloc(&inputs[step - 1], LEAK_BYTES));
    while (step - freed > 1 + step / 2) {
        MUST(cu.cuMemFree(inputs[freed++]));
    }
}

static __attribute__((noinline)) void make_longer(int step)
{
    static CUdeviceptr history;
    const CUdeviceptr last = history;

    if (step % 2 == 0) {
        MUST(cu.cuMemAlloc(&history, (size_t)step * LEAK_BYTES));
        if (last) {
            MUST(cu.cuMemFree(last));
        }
    }
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "0";
    const int leak_from = atoi(how);
    CUcontext context;
    CUdeviceptr block;
    cu = driver_use(&context);
    for (int step = 1; step <= STEPS; step++) {
        memshim_step();
        work(step);
        if (step <= WARM) {
            (void)warm_up();
        }
        if (leak_from > 0 && step >= leak_from) {
            (void)keep_in_list();
        }
        if (strcmp(how, "queue") == 0) {
            queue_input(step);
        }
        if (strcmp(how, "longer") == 0) {
            make_longer(step);
        }
    }
    return cu.cuMemAlloc(&block, (size_t)1 << 40) == CUDA_ERROR_OUT_OF_MEMORY ? 0 : 1;
}
