/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks on views: chunks that are mapped at two addresses for disjoint bytes.
 *
 *   row                 lays out blocks so that the last one has room on a view alone; prints
 *                       whether it was served
 *   handover            the bytes of a view come from a block whose last use is still queued, and
 *                       go back while that of the view is
 *   random SEED ROUNDS  threads fill and check all bytes of large blocks while memory is short,
 *                       each on a stream of its own; a byte that two blocks have, or that changes
 *                       hands before its last use is over, comes back with another's contents */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "driver.h"
#include "say.h"

enum { THREADS = 4, BLOCKS = 5, LARGEST_BYTES = 7 * MIB };

/* Large blocks are set aside in pages of the host, which has no larger ones. */
#define PAGE (64 * KIB)

static struct driver cu;
static CUcontext context;
static unsigned rounds;
static uint64_t first_seed;

/* ---- a row */

static CUdeviceptr block_of(size_t bytes)
{
    CUdeviceptr at;
    MUST(cu.cuMemAlloc(&at, bytes));
    return at;
}

static int row(void)
{
    enum { FIRST = 3 * MIB, MIDDLE = 4 * MIB - PAGE, LAST = 3 * MIB, FAR = 2 * MIB };
    static unsigned char seen[FIRST];
    CUdeviceptr first = block_of(FIRST);
    CUdeviceptr middle = block_of(MIDDLE);
    CUdeviceptr last = block_of(LAST);
    CUdeviceptr far = block_of(FAR);
    CUdeviceptr view;
    size_t view_bytes = 6 * MIB - PAGE;
    MUST(cu.cuMemsetD8(first, 1, FIRST));
    MUST(cu.cuMemsetD8(last, 3, LAST));
    MUST(cu.cuMemFree(middle));
    MUST(cu.cuMemFree(far));
    bool served = cu.cuMemAlloc(&view, view_bytes) == CUDA_SUCCESS;
    if (served) {
        MUST(cu.cuMemsetD8(view, 2, view_bytes));
    }
    MUST(cu.cuMemcpyDtoH(seen, first, FIRST));
    EXPECT(seen[0] == 1 && memcmp(seen, seen + 1, FIRST - 1) == 0);
    MUST(cu.cuMemcpyDtoH(seen, last, LAST));
    EXPECT(seen[0] == 3 && memcmp(seen, seen + 1, LAST - 1) == 0);
    (void)printf("%s\n", served ? "served" : "refused");
    return 0;
}

/* ---- a handover */

enum { QUEUED = 4 }; /* operations before the copy that counts */

/* The block's bytes arrive on the host late; it is freed at once, behind them. */
static void leave(CUdeviceptr at, size_t bytes, unsigned char fill, unsigned char *host,
                  CUstream stream)
{
    for (int k = 0; k < QUEUED; k++) {
        MUST(cu.cuMemsetD8Async(at, fill, bytes, stream));
    }
    MUST(cu.cuMemcpyDtoHAsync(host, at, bytes, stream));
    MUST(cu.cuMemFreeAsync(at, stream));
}

static bool holds(const unsigned char *host, size_t bytes, unsigned char fill)
{
    return host[0] == fill && memcmp(host, host + 1, bytes - 1) == 0;
}

static int handover(void)
{
    enum { FIRST = 3 * MIB, MIDDLE = 2 * MIB - PAGE, LAST = 3 * MIB, FAR = 4 * MIB };
    enum { VIEW = 6 * MIB - PAGE, ALL = 12 * MIB };
    void *middle_bytes;
    void *view_bytes;
    CUstream own;
    CUstream other;
    CUdeviceptr at;
    /* Copies to pageable memory would be waited for. */
    MUST(cu.cuMemAllocHost(&middle_bytes, MIDDLE));
    MUST(cu.cuMemAllocHost(&view_bytes, VIEW));
    MUST(cu.cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    MUST(cu.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CUdeviceptr first = block_of(FIRST);
    CUdeviceptr middle = block_of(MIDDLE);
    CUdeviceptr last = block_of(LAST);
    CUdeviceptr far = block_of(FAR);
    MUST(cu.cuMemFree(far));
    MUST(cu.cuCtxSynchronize());
    leave(middle, MIDDLE, 7, middle_bytes, own);
    MUST(cu.cuMemAllocAsync(&at, VIEW, other));
    leave(at, VIEW, 9, view_bytes, other);
    MUST(cu.cuMemFreeAsync(first, own));
    MUST(cu.cuMemFreeAsync(last, own));
    MUST(cu.cuMemAllocAsync(&at, ALL, own));
    MUST(cu.cuMemsetD8Async(at, 11, ALL, own));
    MUST(cu.cuCtxSynchronize());
    EXPECT(holds(middle_bytes, MIDDLE, 7));
    EXPECT(holds(view_bytes, VIEW, 9));
    (void)printf("kept\n");
    return 0;
}

/* ---- at random */

struct block {
    CUdeviceptr at; /* 0: none */
    size_t bytes;
    unsigned char *host; /* where its bytes arrive */
    unsigned char fill;
    bool under_way;
};

/* All of the block comes to the host behind what is queued, and is freed behind that. */
static void release(struct block *block, CUstream stream, bool in_order)
{
    memset(block->host, 0, block->bytes);
    MUST(cu.cuMemcpyDtoHAsync(block->host, block->at, block->bytes, stream));
    if (in_order) {
        MUST(cu.cuMemFreeAsync(block->at, stream));
    } else {
        MUST(cu.cuMemFree(block->at));
    }
    block->at = 0;
    block->under_way = true;
}

static void check(struct block *block, CUstream stream)
{
    if (!block->under_way) {
        return;
    }
    MUST(cu.cuStreamSynchronize(stream));
    if (block->host[0] != block->fill ||
        memcmp(block->host, block->host + 1, block->bytes - 1) != 0) {
        (void)fprintf(stderr, "a block of %zu bytes has not kept %02x\n", block->bytes,
                      block->fill);
        exit(1);
    }
    block->under_way = false;
}

/* False: there is no memory for it now. */
static bool fill(struct block *block, size_t bytes, unsigned char value, CUstream stream)
{
    CUresult result = cu.cuMemAllocAsync(&block->at, bytes, stream);
    if (result != CUDA_SUCCESS) {
        EXPECT(result == CUDA_ERROR_OUT_OF_MEMORY);
        block->at = 0;
        return false;
    }
    block->bytes = bytes;
    block->fill = value;
    MUST(cu.cuMemsetD8Async(block->at, value, bytes, stream));
    return true;
}

static void *work(void *argument)
{
    uint64_t seed = first_seed * 1000 + (uint64_t)(uintptr_t)argument;
    struct block blocks[BLOCKS] = {0};
    CUstream stream;
    MUST(cu.cuCtxSetCurrent(context));
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int k = 0; k < BLOCKS; k++) {
        void *host;
        MUST(cu.cuMemAllocHost(&host, LARGEST_BYTES));
        blocks[k].host = host;
    }
    for (unsigned round = 0; round < rounds; round++) {
        uint64_t draw = next_random(&seed);
        struct block *block = &blocks[draw % BLOCKS];
        size_t bytes = (size_t)(MIB + draw / 256 % (LARGEST_BYTES - MIB));
        check(block, stream);
        if (block->at != 0) {
            release(block, stream, draw / 64 % 4 != 0);
        } else {
            (void)fill(block, bytes, (unsigned char)(next_random(&seed) | 1), stream);
        }
    }
    for (int k = 0; k < BLOCKS; k++) {
        check(&blocks[k], stream);
        if (blocks[k].at != 0) {
            release(&blocks[k], stream, true);
            check(&blocks[k], stream);
        }
        MUST(cu.cuMemFreeHost(blocks[k].host));
    }
    MUST(cu.cuStreamDestroy(stream));
    return NULL;
}

static int at_random(void)
{
    pthread_t threads[THREADS];
    for (size_t k = 0; k < THREADS; k++) {
        MUST(pthread_create(&threads[k], NULL, work, (void *)(uintptr_t)k));
    }
    for (int k = 0; k < THREADS; k++) {
        MUST(pthread_join(threads[k], NULL));
    }
    (void)printf("%u rounds in each of %d threads, every byte as it was written\n", rounds,
                 THREADS);
    return 0;
}

int main(int argc, char **argv)
{
    CUdevice device;
    EXPECT(argc == 2 || argc == 4);
    cu = driver_open();
    MUST(cu.cuInit(0));
    MUST(cu.cuDeviceGet(&device, 0));
    MUST(cu.cuDevicePrimaryCtxRetain(&context, device));
    MUST(cu.cuCtxSetCurrent(context));
    if (argc == 2) {
        return strcmp(argv[1], "row") == 0 ? row() : handover();
    }
    first_seed = strtoull(argv[2], NULL, 10);
    rounds = (unsigned)strtoul(argv[3], NULL, 10);
    return at_random();
}
