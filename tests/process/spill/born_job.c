/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of cuMemAlloc, more than the cap has room for: what the driver answers about each, and how
 * each is freed. The account is the same whoever serves them, and wherever they lie. */
#include <stdbool.h>
#include <string.h>

#include <cuda.h>

#include "say.h"

enum { BLOCKS = 48 };
#define BLOCK_BYTES ((size_t)4 << 20)
#define WORDS       (BLOCK_BYTES / sizeof(uint32_t))

static CUcontext context;
static CUdeviceptr block[BLOCKS];
static uint32_t host[WORDS];

static unsigned int number(CUpointer_attribute attribute, CUdeviceptr at)
{
    unsigned int value = 77;
    CUresult result = cuPointerGetAttribute(&value, attribute, at);
    return result == CUDA_SUCCESS ? value : 1000 + (unsigned int)result;
}

static void say_attributes(int i, size_t offset)
{
    CUdeviceptr at = block[i] + offset;
    CUdeviceptr start = 0;
    CUdeviceptr pointer = 0;
    size_t bytes = 0;
    void *on_host = &bytes;
    CUcontext of = NULL;
    CUmemoryPool pool = (CUmemoryPool)&bytes;
    MUST(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at));
    MUST(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at));
    MUST(cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at));
    MUST(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, at));
    MUST(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, at));
    (void)printf("%d+%zu: begins %zu before, %zu bytes, itself %d, context %d, pool %d\n", i,
                 offset, (size_t)(at - start), bytes, pointer == at, of == context, pool != NULL);
    (void)printf("  type %u, ordinal %u, managed %u, mapped %u\n",
                 number(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at),
                 number(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at),
                 number(CU_POINTER_ATTRIBUTE_IS_MANAGED, at),
                 number(CU_POINTER_ATTRIBUTE_MAPPED, at));
    CUresult result = cuPointerGetAttribute(&on_host, CU_POINTER_ATTRIBUTE_HOST_POINTER, at);
    (void)printf("  host pointer %d, %d\n", (int)result, on_host != NULL);
    MUST(cuMemGetAddressRange(&start, &bytes, at));
    (void)printf("  range %zu before, %zu bytes\n", (size_t)(at - start), bytes);
}

static void say_all_at_once(int i)
{
    unsigned int type = 0;
    unsigned int managed = 7;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED};
    void *data[] = {&type, &managed};
    MUST(cuPointerGetAttributes(2, which, data, block[i]));
    (void)printf("  at once: type %u, managed %u\n", type, managed);
}

/* What is no way to free memory of the device. */
static void say_wrong_frees(int i)
{
    void *at = (void *)(uintptr_t)block[i];
    (void)printf("  as the host's: %d %d\n", (int)cuMemFreeHost(at), (int)cuMemHostUnregister(at));
}

static void check(int i, uint32_t word)
{
    memset(host, 0, sizeof host);
    MUST(cuMemcpyDtoH(host, block[i], BLOCK_BYTES));
    for (size_t w = 0; w < WORDS; w++) {
        EXPECT(host[w] == word);
    }
}

/* Every second one in the order of a stream, with work on it queued. */
static void free_one(int i, CUstream stream)
{
    if (i % 2 == 0) {
        SAY_RESULT(cuMemFree(block[i]));
        return;
    }
    MUST(cuMemsetD32Async(block[i], 0x55555555, WORDS, stream));
    MUST(cuMemcpyDtoHAsync(host, block[i], BLOCK_BYTES, stream));
    SAY_RESULT(cuMemFreeAsync(block[i], stream));
    MUST(cuStreamSynchronize(stream));
    for (size_t w = 0; w < WORDS; w++) {
        EXPECT(host[w] == 0x55555555);
    }
}

static void make_all(void)
{
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemAlloc(&block[i], BLOCK_BYTES));
        MUST(cuMemsetD32(block[i], (uint32_t)i, WORDS));
    }
}

int main(void)
{
    CUstream stream;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    make_all();
    for (int i = 0; i < BLOCKS; i++) {
        say_attributes(i, 0);
        say_attributes(i, 12345);
        say_all_at_once(i);
        say_wrong_frees(i);
        check(i, (uint32_t)i);
    }
    for (int i = 0; i < BLOCKS; i++) {
        free_one(i, stream);
    }
    /* What they had is there for others: three times as much would not be. */
    for (int round = 0; round < 3; round++) {
        make_all();
        for (int i = 0; i < BLOCKS; i++) {
            check(i, (uint32_t)i);
            MUST(cuMemFreeAsync(block[i], stream));
        }
        MUST(cuStreamSynchronize(stream));
    }
    MUST(cuDevicePrimaryCtxRelease(0));
    return 0;
}
