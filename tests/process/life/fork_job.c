/* SPDX-License-Identifier: Apache-2.0 */
/* Forks while other threads run short of memory: every fork returns, and every child ends.
 *
 * Arguments: "shortage", and how many forks while two threads allocate and free on streams of their
 * own, more together than the device has; "spill", and how often a fork falls into the spill that
 * one large allocation causes; or "handlers", and how many forks around which the program's own
 * handlers, registered before the device is used, allocate and free. Ends with "done". */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

#define THREADS      2
#define BLOCKS       48 /* of a thread: half of them live at a time is more than both have */
#define MOST_BYTES   (32 * MIB)
#define COLD_BYTES   (48 * MIB)
#define COLD_BLOCKS  7
#define LARGE_BYTES  (256 * MIB)
#define LATEST_NS    3000000u
#define CHILD_STATUS 3

static struct driver driver;
static CUcontext context;
static atomic_bool ended;
static atomic_uint served[THREADS];

static void fork_once(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr none = 0;
        (void)driver.cuMemAlloc(&none, MIB); /* goes to the driver, which refuses */
        _exit(CHILD_STATUS);
    }
    EXPECT(child > 0);
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == CHILD_STATUS);
}

/* Holds up to BLOCKS blocks of up to 32 MiB; a refusal is no failure. */
static void *allocate(void *seed)
{
    uint64_t random = (uint64_t)(uintptr_t)seed;
    CUdeviceptr blocks[BLOCKS] = {0};
    CUstream streams[2];
    MUST(driver.cuCtxSetCurrent(context));
    MUST(driver.cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    MUST(driver.cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
    while (!atomic_load(&ended)) {
        uint64_t drawn = next_random(&random);
        CUdeviceptr *block = &blocks[drawn % BLOCKS];
        CUstream stream = streams[drawn % BLOCKS % 2];
        if (*block != 0) {
            MUST(driver.cuMemFreeAsync(*block, stream));
            *block = 0;
        } else if (driver.cuMemAllocAsync(block, MIB + (drawn >> 16) % (MOST_BYTES - MIB),
                                          stream) == CUDA_SUCCESS) {
            MUST(driver.cuMemsetD8Async(*block, 1, MIB, stream));
            atomic_fetch_add(&served[(uintptr_t)seed - 1], 1);
        } else {
            *block = 0;
        }
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i] != 0) {
            MUST(driver.cuMemFreeAsync(blocks[i], streams[i % 2]));
        }
    }
    MUST(driver.cuStreamDestroy(streams[0]));
    MUST(driver.cuStreamDestroy(streams[1]));
    return NULL;
}

/* From here on the two hold more than there is. */
static bool both_have_run(void)
{
    return atomic_load(&served[0]) >= BLOCKS && atomic_load(&served[1]) >= BLOCKS;
}

static void fork_in_shortage(int forks)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        MUST(pthread_create(&threads[i], NULL, allocate, (void *)(uintptr_t)(i + 1)));
    }
    for (int i = 0; i < forks; i++) {
        fork_once();
    }
    while (!both_have_run()) { /* while there were forks; and they go on */
        fork_once();
    }
    atomic_store(&ended, true);
    for (int i = 0; i < THREADS; i++) {
        MUST(pthread_join(threads[i], NULL));
    }
}

static void *allocate_large(void *out)
{
    MUST(driver.cuCtxSetCurrent(context));
    MUST(driver.cuMemAlloc(out, LARGE_BYTES));
    return NULL;
}

/* The cold blocks fill the device; the large one makes some of them leave. */
static void fork_in_spill(int rounds)
{
    CUdeviceptr cold[COLD_BLOCKS], large = 0;
    CUstream stream = NULL;
    uint64_t random = 1;
    MUST(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < rounds; round++) {
        pthread_t thread;
        for (int i = 0; i < COLD_BLOCKS; i++) {
            MUST(driver.cuMemAlloc(&cold[i], COLD_BYTES));
            MUST(driver.cuMemsetD8Async(cold[i], 1, COLD_BYTES, stream));
        }
        MUST(pthread_create(&thread, NULL, allocate_large, &large));
        const struct timespec moment = {.tv_nsec = (long)(next_random(&random) % LATEST_NS)};
        (void)nanosleep(&moment, NULL);
        fork_once();
        MUST(pthread_join(thread, NULL));
        MUST(driver.cuMemFree(large));
        for (int i = 0; i < COLD_BLOCKS; i++) {
            MUST(driver.cuMemFree(cold[i]));
        }
    }
}

static CUdeviceptr kept;

static void allocate_and_free(void)
{
    CUdeviceptr block = 0;
    MUST(driver.cuMemAlloc(&block, MIB));
    MUST(driver.cuMemFree(block));
}

static void free_in_child(void)
{
    (void)driver.cuMemFree(kept); /* goes to the driver, which refuses */
}

static void fork_with_handlers(int forks)
{
    MUST(driver.cuMemAlloc(&kept, MIB));
    for (int i = 0; i < forks; i++) {
        fork_once();
    }
    MUST(driver.cuMemFree(kept));
}

int main(int argc, char **argv)
{
    EXPECT(argc == 3);
    driver = driver_open();
    const bool handlers = strcmp(argv[1], "handlers") == 0;
    if (handlers) {
        MUST(pthread_atfork(allocate_and_free, allocate_and_free, free_in_child));
    }
    MUST(driver.cuInit(0));
    MUST(driver.cuDevicePrimaryCtxRetain(&context, 0));
    MUST(driver.cuCtxSetCurrent(context));
    if (strcmp(argv[1], "shortage") == 0) {
        fork_in_shortage(atoi(argv[2]));
    } else if (handlers) {
        fork_with_handlers(atoi(argv[2]));
    } else {
        fork_in_spill(atoi(argv[2]));
    }
    (void)printf("done\n");
    return 0;
}
