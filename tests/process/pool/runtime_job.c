/* SPDX-License-Identifier: Apache-2.0 */
/* What an application does with the runtime interface, linked dynamically or statically. The
 * account on standard output is compared between a run with memshim and one without. */
#include <cuda_runtime_api.h>
#include <string.h>

#include "say.h"

static uint64_t device_hash(const void *at, size_t bytes)
{
    unsigned char *host = malloc(bytes);
    EXPECT(host != NULL);
    MUST(cudaMemcpy(host, at, bytes, cudaMemcpyDeviceToHost));
    uint64_t hash = hash_bytes(host, bytes);
    free(host);
    return hash;
}

/* The runtime's error state tells the same story after a refusal as without memshim. */
static void errors(void)
{
    void *block = NULL;
    void *small = NULL;
    SAY_RESULT(cudaMalloc(&block, (size_t)1 << 50));
    SAY_RESULT(cudaPeekAtLastError());
    SAY_RESULT(cudaGetLastError());
    SAY_RESULT(cudaGetLastError());
    SAY_RESULT(cudaMalloc(&small, 1000));
    SAY_RESULT(cudaGetLastError());
    SAY_RESULT(cudaFree(small));
    SAY_RESULT(cudaFree(NULL));
    SAY_RESULT(cudaFree((void *)0x12340000));
    SAY_RESULT(cudaGetLastError());
    SAY_RESULT(cudaMalloc(&block, 0));
    (void)printf("of no bytes: %s\n", block == NULL ? "null" : "a pointer");
    SAY_RESULT(cudaMallocAsync(&block, (size_t)1 << 50, 0));
    SAY_RESULT(cudaGetLastError());
}

static void memory(void)
{
    enum { BLOCKS = 40 };
    void *blocks[BLOCKS];
    size_t sizes[BLOCKS];
    uint64_t seed = 11;
    for (int i = 0; i < BLOCKS; i++) {
        sizes[i] = (size_t)(next_random(&seed) % (i % 5 == 0 ? 12 * MIB : MIB)) + 1;
        MUST(cudaMalloc(&blocks[i], sizes[i]));
        MUST(cudaMemset(blocks[i], i, sizes[i]));
    }
    for (int i = 0; i < BLOCKS; i += 2) {
        MUST(cudaFree(blocks[i]));
        MUST(cudaMallocAsync(&blocks[i], sizes[i], 0));
        MUST(cudaMemsetAsync(blocks[i], 100 + i, sizes[i], 0));
    }
    for (int i = 0; i < BLOCKS; i++) {
        (void)printf("block %d: %zu bytes, %016llx\n", i, sizes[i],
                     (unsigned long long)device_hash(blocks[i], sizes[i]));
    }
    for (int i = 0; i < BLOCKS; i++) {
        MUST(i % 3 == 0 ? cudaFree(blocks[i]) : cudaFreeAsync(blocks[i], 0));
    }
    MUST(cudaDeviceSynchronize());
}

static void other_kinds(void)
{
    void *pitched, *managed, *pinned, *own;
    size_t pitch;
    struct cudaPitchedPtr volume;
    cudaArray_t array;
    struct cudaChannelFormatDesc format = {32, 0, 0, 0, cudaChannelFormatKindFloat};
    MUST(cudaMallocPitch(&pitched, &pitch, 1000, 30));
    (void)printf("pitch %zu\n", pitch);
    MUST(cudaMemset2D(pitched, pitch, 4, 1000, 30));
    MUST(cudaFree(pitched));
    MUST(cudaMalloc3D(&volume, (struct cudaExtent){500, 20, 10}));
    (void)printf("volume's pitch %zu\n", volume.pitch);
    MUST(cudaFree(volume.ptr));
    MUST(cudaMallocManaged(&managed, MIB, cudaMemAttachGlobal));
    MUST(cudaMemset(managed, 8, MIB));
    (void)printf("managed: %016llx\n", (unsigned long long)device_hash(managed, MIB));
    MUST(cudaFree(managed));
    MUST(cudaMallocHost(&pinned, 300 * KIB));
    memset(pinned, 1, 300 * KIB);
    MUST(cudaFreeHost(pinned));
    own = aligned_alloc(4096, 64 * KIB);
    EXPECT(own != NULL);
    MUST(cudaHostRegister(own, 64 * KIB, cudaHostRegisterDefault));
    MUST(cudaHostUnregister(own));
    free(own);
    MUST(cudaMallocArray(&array, &format, 64, 64, 0));
    MUST(cudaFreeArray(array));
}

static void identity(void)
{
    void *block;
    struct cudaPointerAttributes attributes;
    MUST(cudaMalloc(&block, 3 * MIB));
    MUST(cudaPointerGetAttributes(&attributes, (char *)block + MIB));
    (void)printf("type %d device %d same %d\n", attributes.type, attributes.device,
                 attributes.devicePointer == (char *)block + MIB);
    MUST(cudaFree(block));
}

static void streams_and_events(void)
{
    cudaStream_t streams[3];
    cudaEvent_t event;
    cudaMemPool_t pool;
    void *block = NULL;
    uint64_t threshold = UINT64_MAX, reserved = 0;
    MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
    SAY_RESULT(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    for (int i = 0; i < 3; i++) {
        MUST(cudaStreamCreateWithFlags(&streams[i],
                                       i == 0 ? cudaStreamDefault : cudaStreamNonBlocking));
    }
    for (int round = 0; round < 30; round++) {
        cudaStream_t first = streams[round % 3], second = streams[(round + 1) % 3];
        size_t bytes = (size_t)(1 + round % 7) * 150 * KIB;
        MUST(cudaMallocAsync(&block, bytes, first));
        MUST(cudaMemsetAsync(block, round, bytes, first));
        MUST(cudaEventRecord(event, first));
        MUST(cudaStreamWaitEvent(second, event, 0));
        MUST(cudaMemsetAsync(block, round + 1, bytes / 2, second));
        MUST(cudaStreamSynchronize(second));
        (void)printf("round %d: %016llx\n", round, (unsigned long long)device_hash(block, bytes));
        MUST(cudaFreeAsync(block, second));
    }
    MUST(cudaDeviceSynchronize());
    SAY_RESULT(cudaMemPoolTrimTo(pool, 0));
    SAY_RESULT(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
    for (int i = 0; i < 3; i++) {
        MUST(cudaStreamDestroy(streams[i]));
    }
    MUST(cudaEventDestroy(event));
}

static void memory_info(void)
{
    size_t free_before, total, free_after;
    void *block;
    MUST(cudaMemGetInfo(&free_before, &total));
    MUST(cudaMalloc(&block, 256 * MIB));
    MUST(cudaMemGetInfo(&free_after, &total));
    (void)printf("what was asked for is gone: %d\n", free_before - free_after >= 256 * MIB);
    MUST(cudaFree(block));
    MUST(cudaMemGetInfo(&free_after, &total));
    (void)printf("and is there again: %d\n", free_after <= total && free_after >= 256 * MIB);
}

int main(void)
{
    int count;
    MUST(cudaGetDeviceCount(&count));
    (void)printf("%d devices\n", count);
    errors();
    memory();
    identity();
    other_kinds();
    streams_and_events();
    memory_info();
    MUST(cudaDeviceReset());
    SAY_RESULT(cudaGetLastError());
    return 0;
}
