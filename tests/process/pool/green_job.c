/* SPDX-License-Identifier: Apache-2.0 */
/* Green contexts, one case a run: what is charged for one, what its streams do, and what is left
 * when it goes.
 *
 * Arguments: the case, or "list" for the names of all; "old" for a driver that cannot record an
 * event for a whole context. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include <cuda.h>

#include "cases.h"
#include "gate_entry.h"
#include "held_work.h"
#include "say.h"

#define BLOCK_BYTES ((size_t)4 << 20)
#define LONG_NS     (60ull * 1000000000)

enum { BLOCKS = 8, GOING_MS = 50 };

static bool old;
static CUgreenCtx green;
static CUcontext context, converted;
static CUdeviceptr block;

static void make_green(void)
{
    CUdevResource processors;
    CUdevResourceDesc description;
    MUST(cuDeviceGetDevResource(0, &processors, CU_DEV_RESOURCE_TYPE_SM));
    MUST(cuDevResourceGenerateDesc(&description, &processors, 1));
    MUST(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    MUST(cuCtxFromGreenCtx(&converted, green));
}

static void begin(void)
{
    MUST(cuInit(0));
}

static void begin_with_primary(void)
{
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    if (old) {
        gate_hide_context_events();
    }
    MUST(cuMemAlloc(&block, BLOCK_BYTES));
    MUST(cuMemsetD8(block, 1, BLOCK_BYTES));
    make_green();
}

static size_t free_bytes(void)
{
    size_t bytes, total;
    MUST(cuMemGetInfo(&bytes, &total));
    return bytes;
}

/* ---- work that is held for a while */

/* A stream of the green context uses the block from here on; the primary one is current again. */
static pthread_t use_in_green(bool own_stream)
{
    CUstream stream = NULL;
    MUST(cuCtxSetCurrent(converted));
    if (own_stream) {
        MUST(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    }
    pthread_t thread = hold(stream);
    MUST(cuMemsetD8Async(block, 2, BLOCK_BYTES, stream));
    MUST(cuCtxSetCurrent(context));
    return thread;
}

static void halt_waits(pthread_t thread)
{
    MUST(gate_halt(0, LONG_NS));
    EXPECT(atomic_load(&released));
    gate_resume(0);
    MUST(pthread_join(thread, NULL));
}

static void reuse_waits(pthread_t thread)
{
    CUdeviceptr next;
    MUST(cuMemFree(block));
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemAlloc(&next, BLOCK_BYTES));
        EXPECT(next != block || atomic_load(&released));
    }
    MUST(pthread_join(thread, NULL));
}

static void stream_halts(void)
{
    begin_with_primary();
    halt_waits(use_in_green(true));
}

static void stream_reuse(void)
{
    begin_with_primary();
    reuse_waits(use_in_green(true));
}

static void default_stream_halts(void)
{
    begin_with_primary();
    halt_waits(use_in_green(false));
}

static void default_stream_reuse(void)
{
    begin_with_primary();
    reuse_waits(use_in_green(false));
}

static void *destroy_green(void *unused)
{
    MUST(cuGreenCtxDestroy(green));
    return unused;
}

/* While the green context is destroyed, and has work. */
static void default_stream_going_halts(void)
{
    pthread_t going;
    begin_with_primary();
    pthread_t thread = use_in_green(false);
    MUST(pthread_create(&going, NULL, destroy_green, NULL));
    nap_ms(GOING_MS);
    halt_waits(thread);
    MUST(pthread_join(going, NULL));
}

/* The handle means another stream in each of the two contexts. */
static void streams_are_two(CUstream stream)
{
    CUdeviceptr first, next;
    begin_with_primary();
    MUST(cuMemAllocAsync(&first, BLOCK_BYTES, stream));
    pthread_t thread = hold(stream);
    MUST(cuMemsetD8Async(first, 2, BLOCK_BYTES, stream));
    MUST(cuMemFreeAsync(first, stream));
    MUST(cuCtxSetCurrent(converted));
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemAllocAsync(&next, BLOCK_BYTES, stream));
        EXPECT(next != first || atomic_load(&released));
    }
    MUST(pthread_join(thread, NULL));
}

static void default_streams_are_two(void)
{
    streams_are_two(NULL);
}

static void thread_streams_are_two(void)
{
    streams_are_two(CU_STREAM_PER_THREAD);
}

/* Freed in the order of the one in the green context. */
static void thread_stream_reuse(void)
{
    CUdeviceptr first, next;
    begin_with_primary();
    MUST(cuCtxSetCurrent(converted));
    MUST(cuMemAllocAsync(&first, BLOCK_BYTES, CU_STREAM_PER_THREAD));
    pthread_t thread = hold(CU_STREAM_PER_THREAD);
    MUST(cuMemsetD8Async(first, 2, BLOCK_BYTES, CU_STREAM_PER_THREAD));
    MUST(cuMemFreeAsync(first, CU_STREAM_PER_THREAD));
    MUST(cuCtxSetCurrent(context));
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemAllocAsync(&next, BLOCK_BYTES, NULL));
        EXPECT(next != first || atomic_load(&released));
    }
    MUST(pthread_join(thread, NULL));
}

/* Another stream's memory is waited for on the host: no wait can be queued on that default stream,
 * which no other context can name. */
static void default_stream_waits(void)
{
    CUdeviceptr first, next;
    size_t bytes, total;
    begin_with_primary();
    MUST(cuMemFree(block));
    MUST(cuMemGetInfo(&bytes, &total));
    bytes = bytes / BLOCK_BYTES * BLOCK_BYTES;
    MUST(cuMemAllocAsync(&first, bytes, NULL));
    pthread_t thread = hold(NULL);
    MUST(cuMemFreeAsync(first, NULL));
    MUST(cuCtxSetCurrent(converted));
    MUST(cuMemAllocAsync(&next, BLOCK_BYTES, NULL));
    EXPECT(atomic_load(&released));
    MUST(cuMemFreeAsync(next, NULL));
    MUST(pthread_join(thread, NULL));
}

/* ---- what is charged */

static void costs_no_context(void)
{
    begin_with_primary();
    size_t before = free_bytes();
    MUST(cuCtxSetCurrent(converted));
    EXPECT(free_bytes() == before);
    MUST(cuMemFree(block));
    MUST(cuMemAlloc(&block, BLOCK_BYTES));
    EXPECT(free_bytes() == before);
}

/* Nor is room kept for a context that was not made: here it would have been the primary one. */
static void refused_costs_nothing(void)
{
    MUST(cuCtxCreate(&context, NULL, 0, 0));
    MUST(cuMemAlloc(&block, BLOCK_BYTES));
    size_t before = free_bytes();
    for (int i = 0; i < BLOCKS; i++) {
        EXPECT(cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM) != CUDA_SUCCESS);
    }
    EXPECT(free_bytes() == before);
    MUST(cuMemFree(block));
}

/* ---- what is left */

/* Memory that was allocated while it was current is the primary context's. */
static void memory_outlives_it(void)
{
    CUdeviceptr own, next;
    unsigned char byte = 0;
    begin_with_primary();
    MUST(cuCtxSetCurrent(converted));
    MUST(cuMemAlloc(&own, BLOCK_BYTES));
    MUST(cuMemsetD8(own, 3, BLOCK_BYTES));
    MUST(cuCtxSetCurrent(context));
    MUST(cuGreenCtxDestroy(green));
    MUST(gate_halt(0, LONG_NS));
    gate_resume(0);
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemAlloc(&next, BLOCK_BYTES));
        MUST(cuMemsetD8(next, 4, BLOCK_BYTES));
    }
    MUST(cuMemcpyDtoH(&byte, own, 1));
    EXPECT(byte == 3);
    MUST(cuMemFree(own));
    MUST(cuMemFree(block));
}

/* A stream that the program forgot to destroy before (cuda.h, cuGreenCtxDestroy). */
static void stream_is_left(void)
{
    CUdeviceptr next;
    CUstream stream;
    begin_with_primary();
    MUST(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    MUST(cuMemAllocAsync(&next, BLOCK_BYTES, stream));
    MUST(cuMemsetD8Async(next, 2, BLOCK_BYTES, stream));
    MUST(cuMemFreeAsync(next, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuGreenCtxDestroy(green));
    MUST(gate_halt(0, LONG_NS));
    gate_resume(0);
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemAlloc(&next, BLOCK_BYTES));
    }
    MUST(cuMemFree(block));
}

/* It alone holds the primary context, which goes with it and takes the program's memory along. */
static void primary_goes_with_it(void)
{
    CUdeviceptr next;
    make_green();
    MUST(cuCtxSetCurrent(converted));
    size_t before = free_bytes();
    MUST(cuMemAlloc(&block, BLOCK_BYTES));
    MUST(cuMemsetD8(block, 1, BLOCK_BYTES));
    EXPECT(free_bytes() < before);
    MUST(cuCtxSetCurrent(NULL));
    MUST(cuGreenCtxDestroy(green));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    EXPECT(free_bytes() == before);
    MUST(cuMemAlloc(&next, BLOCK_BYTES));
    MUST(cuMemsetD8(next, 1, BLOCK_BYTES));
    MUST(cuMemFree(next));
}

/* The program's release is not the last use while the green one lives. */
static void primary_stays_with_it(void)
{
    unsigned char byte = 0;
    begin_with_primary();
    MUST(cuCtxSetCurrent(converted));
    MUST(cuDevicePrimaryCtxRelease(0));
    MUST(cuMemcpyDtoH(&byte, block, 1));
    EXPECT(byte == 1);
    MUST(cuMemFree(block));
    MUST(cuCtxSetCurrent(NULL));
    MUST(cuGreenCtxDestroy(green));
}

/* ---- main */

static const struct test_case cases[] = {
    {"stream_halts", stream_halts},
    {"stream_reuse", stream_reuse},
    {"default_stream_halts", default_stream_halts},
    {"default_stream_reuse", default_stream_reuse},
    {"default_stream_going_halts", default_stream_going_halts},
    {"default_streams_are_two", default_streams_are_two},
    {"thread_streams_are_two", thread_streams_are_two},
    {"thread_stream_reuse", thread_stream_reuse},
    {"default_stream_waits", default_stream_waits},
    {"costs_no_context", costs_no_context},
    {"refused_costs_nothing", refused_costs_nothing},
    {"memory_outlives_it", memory_outlives_it},
    {"stream_is_left", stream_is_left},
    {"primary_goes_with_it", primary_goes_with_it},
    {"primary_stays_with_it", primary_stays_with_it},
};

int main(int argc, char **argv)
{
    old = argc > 2 && strcmp(argv[2], "old") == 0;
    return run_case(argc, argv, cases, sizeof cases / sizeof *cases, begin);
}
