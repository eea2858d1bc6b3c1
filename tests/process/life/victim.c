/* SPDX-License-Identifier: Apache-2.0 */
/* A process that is killed: it writes into a shared file what it has completed, phase after phase,
 * so that the trace can be asked afterwards whether it knows as much. A thread of its own kills it,
 * since only that is quick enough to hit a chosen moment.
 *
 * victim FILE SEED ROUNDS [PHASE COUNT NANOSECONDS]: SIGKILL this long after so many things of this
 * phase are done. The file holds struct progress. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.h"
#include "driver.h"
#include "say.h"

enum { HELD = 32, REFUSALS = 40 };

struct progress {
    _Atomic uint64_t phase; /* 0 start, 1 churn, 2 out of memory, 3 exit */
    _Atomic uint64_t allocations, frees, refusals;
};

struct moment {
    uint64_t phase, count, delay_ns;
};

static struct driver cu;
static struct progress *done;

static bool has_come(const struct moment *moment)
{
    uint64_t phase = atomic_load(&done->phase);
    uint64_t count = phase == 1   ? atomic_load(&done->allocations)
                     : phase == 2 ? atomic_load(&done->refusals)
                                  : 0;
    return phase > moment->phase || (phase == moment->phase && count >= moment->count);
}

static void *kill_at(void *argument)
{
    const struct moment *moment = argument;
    while (!has_come(moment)) {
    }
    for (uint64_t end = now_ns() + moment->delay_ns; now_ns() < end;) {
    }
    (void)kill(getpid(), SIGKILL);
    return NULL;
}

static void open_progress(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    EXPECT(file >= 0);
    MUST(ftruncate(file, sizeof *done));
    done = mmap(NULL, sizeof *done, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    EXPECT(done != MAP_FAILED);
    MUST(close(file));
}

static void swap_block(CUdeviceptr *block, uint64_t bytes, CUstream stream)
{
    if (*block != 0) {
        MUST(cu.cuMemFreeAsync(*block, stream));
        atomic_fetch_add(&done->frees, 1);
    }
    MUST(cu.cuMemAllocAsync(block, bytes, stream));
    atomic_fetch_add(&done->allocations, 1);
}

static void run_out(CUstream stream)
{
    CUdeviceptr block;
    CUresult result = cu.cuMemAllocAsync(&block, 4096 * GIB, stream);
    EXPECT(result == CUDA_ERROR_OUT_OF_MEMORY);
    atomic_fetch_add(&done->refusals, 1);
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext context;
    CUstream stream;
    CUdeviceptr blocks[HELD] = {0};
    static struct moment moment;
    pthread_t killer;
    EXPECT(argc == 4 || argc == 7);
    open_progress(argv[1]);
    if (argc == 7) {
        moment = (struct moment){strtoull(argv[4], NULL, 10), strtoull(argv[5], NULL, 10),
                                 strtoull(argv[6], NULL, 10)};
        MUST(pthread_create(&killer, NULL, kill_at, &moment));
    }
    uint64_t seed = strtoull(argv[2], NULL, 10);
    uint64_t rounds = strtoull(argv[3], NULL, 10);
    cu = driver_open();
    MUST(cu.cuInit(0));
    MUST(cu.cuDeviceGet(&device, 0));
    MUST(cu.cuDevicePrimaryCtxRetain(&context, device));
    MUST(cu.cuCtxSetCurrent(context));
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    atomic_store(&done->phase, 1);
    for (uint64_t i = 0; i < rounds; i++) {
        uint64_t draw = next_random(&seed);
        swap_block(&blocks[draw % HELD], (draw >> 8) % (4 * MIB) + 1, stream);
    }
    atomic_store(&done->phase, 2);
    /* A refusal is quicker than a loaded machine's killer: who is to die among them waits for it.
     */
    bool dies_here = argc == 7 && moment.phase == 2;
    for (int i = 0; i < REFUSALS || dies_here; i++) {
        run_out(stream);
    }
    atomic_store(&done->phase, 3);
    return 0;
}
