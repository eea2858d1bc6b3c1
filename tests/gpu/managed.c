/* SPDX-License-Identifier: Apache-2.0 */
/* An allocator for PyTorch that spills at allocation, to compare with: blocks of the device up to a
 * cap, and managed memory that prefers the host, which the device reads and writes over the bus,
 * for what does not fit. Never more managed memory than half of what the card had free at the
 * beginning. Blocks are kept by size and handed out again; for jobs on one stream.
 *
 * GPU_CHECK_MANAGED_CAP: bytes. */
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

enum { BLOCKS_MAX = 65536, ROUND_BYTES = 512 };

struct block {
    CUdeviceptr at;
    size_t bytes;
    bool managed, free;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block blocks[BLOCKS_MAX];
static size_t block_count;
static size_t device_bytes, managed_bytes;
static size_t cap_bytes, managed_max_bytes;

/* Exported: PyTorch looks them up by name. */
__attribute__((visibility("default"))) void *managed_malloc(size_t size, int device, void *stream);
__attribute__((visibility("default"))) void managed_free(void *at, size_t size, int device,
                                                         void *stream);

static void begin(void)
{
    size_t free = 0;
    size_t total = 0;
    const char *cap = getenv("GPU_CHECK_MANAGED_CAP");
    cap_bytes = cap != NULL ? strtoull(cap, NULL, 10) : 0;
    if (cuMemGetInfo(&free, &total) == CUDA_SUCCESS) {
        managed_max_bytes = (free - (cap_bytes < free ? cap_bytes : free)) / 2;
    }
}

/* Of the device's where there is one, else of the managed. */
static struct block *kept(size_t bytes)
{
    struct block *found = NULL;
    for (size_t i = 0; i < block_count; i++) {
        struct block *block = &blocks[i];
        if (block->free && block->at != 0 && block->bytes == bytes &&
            (found == NULL || (found->managed && !block->managed))) {
            found = block;
        }
    }
    return found;
}

static struct block *empty_slot(void)
{
    for (size_t i = 0; i < block_count; i++) {
        if (blocks[i].at == 0) {
            return &blocks[i];
        }
    }
    return block_count < BLOCKS_MAX ? &blocks[block_count++] : NULL;
}

/* Gives kept blocks of the device back until so many bytes more fit under the cap. */
static void make_room(size_t bytes)
{
    for (size_t i = 0; i < block_count && device_bytes + bytes > cap_bytes; i++) {
        struct block *block = &blocks[i];
        if (block->at != 0 && block->free && !block->managed) {
            (void)cuMemFree(block->at);
            device_bytes -= block->bytes;
            block->at = 0;
        }
    }
}

static CUresult allocate_managed(struct block *block, CUdevice device)
{
    if (managed_bytes + block->bytes > managed_max_bytes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = cuMemAllocManaged(&block->at, block->bytes, CU_MEM_ATTACH_GLOBAL);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    managed_bytes += block->bytes;
    block->managed = true;
#if CUDA_VERSION >= 13000
    CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
#else
    CUdevice host = CU_DEVICE_CPU;
    CUdevice here = device;
#endif
    /* Advice: where it is not taken the memory works all the same. */
    (void)cuMemAdvise(block->at, block->bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host);
    (void)cuMemAdvise(block->at, block->bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, here);
    return CUDA_SUCCESS;
}

static CUdeviceptr allocate(size_t bytes, CUdevice device)
{
    if (cap_bytes == 0) {
        begin();
    }
    struct block *block = kept(bytes);
    if (block != NULL) {
        block->free = false;
        return block->at;
    }
    make_room(bytes);
    block = empty_slot();
    if (block == NULL) {
        return 0;
    }
    *block = (struct block){.bytes = bytes};
    if (device_bytes + bytes <= cap_bytes && cuMemAlloc(&block->at, bytes) == CUDA_SUCCESS) {
        device_bytes += bytes;
    } else if (allocate_managed(block, device) != CUDA_SUCCESS) {
        block->at = 0;
    }
    return block->at;
}

void *managed_malloc(size_t size, int device, void *stream)
{
    size_t bytes = (size + ROUND_BYTES - 1) / ROUND_BYTES * ROUND_BYTES;
    (void)stream;
    (void)pthread_mutex_lock(&lock);
    CUdeviceptr at = bytes == 0 ? 0 : allocate(bytes, device);
    (void)pthread_mutex_unlock(&lock);
    return (void *)(uintptr_t)at; /* NOLINT(performance-no-int-to-ptr): a device address */
}

void managed_free(void *at, size_t size, int device, void *stream)
{
    (void)size;
    (void)device;
    (void)stream;
    (void)pthread_mutex_lock(&lock);
    for (size_t i = 0; at != NULL && i < block_count; i++) {
        if (blocks[i].at == (CUdeviceptr)(uintptr_t)at) {
            blocks[i].free = true;
        }
    }
    (void)pthread_mutex_unlock(&lock);
}
