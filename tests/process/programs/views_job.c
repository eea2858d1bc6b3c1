/* Blocks on views: chunks that are mapped at two addresses for disjoint bytes.
 *
 *   row                 lays out blocks so that the last one has room on a view alone; prints
 *                       whether it was served
 *   random SEED ROUNDS  threads fill and check all bytes of large blocks while memory is short,
 *                       each on a stream of its own; a byte that two blocks have, or that changes
 *                       hands before its last use is over, comes back with another's contents */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "driver.h"
#include "say.h"

enum { THREADS = 4, BLOCKS = 5, LARGEST_BYTES = 7 * MIB };

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
    enum { FIRST = 3 * MIB, MIDDLE = 4 * MIB - 512, LAST = 3 * MIB, FAR = 2 * MIB };
    static unsigned char seen[FIRST];
    CUdeviceptr first = block_of(FIRST);
    CUdeviceptr middle = block_of(MIDDLE);
    CUdeviceptr last = block_of(LAST);
    CUdeviceptr far = block_of(FAR);
    CUdeviceptr view;
    size_t view_bytes = 6 * MIB - 512;
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

/* ---- at random */

struct block {
    CUdeviceptr at; /* 0: none */
    size_t bytes;
    unsigned char fill;
};

/* What lies in the block comes to the host behind all that was queued, and is freed behind that. */
static void finish(struct block *block, CUstream stream, unsigned char *host, bool at_once)
{
    if (block->at == 0) {
        return;
    }
    MUST(cu.cuMemcpyDtoHAsync(host, block->at, block->bytes, stream));
    if (at_once) {
        MUST(cu.cuMemFreeAsync(block->at, stream));
    } else {
        MUST(cu.cuMemFree(block->at));
    }
    MUST(cu.cuStreamSynchronize(stream));
    if (host[0] != block->fill || memcmp(host, host + 1, block->bytes - 1) != 0) {
        (void)fprintf(stderr, "%zu bytes at %llx have not kept %02x\n", block->bytes, block->at,
                      block->fill);
        exit(1);
    }
    block->at = 0;
}

static void *work(void *argument)
{
    uint64_t seed = first_seed * 1000 + (uint64_t)(uintptr_t)argument;
    struct block blocks[BLOCKS] = {0};
    unsigned char *host = malloc(LARGEST_BYTES);
    CUstream stream;
    EXPECT(host != NULL);
    MUST(cu.cuCtxSetCurrent(context));
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned round = 0; round < rounds; round++) {
        uint64_t draw = next_random(&seed);
        struct block *block = &blocks[draw % BLOCKS];
        finish(block, stream, host, draw / 64 % 4 != 0);
        size_t bytes = (size_t)(MIB + draw / 256 % (LARGEST_BYTES - MIB));
        CUresult result = cu.cuMemAllocAsync(&block->at, bytes, stream);
        if (result != CUDA_SUCCESS) {
            EXPECT(result == CUDA_ERROR_OUT_OF_MEMORY);
            block->at = 0;
            finish(&blocks[draw / 16384 % BLOCKS], stream, host, true);
            continue;
        }
        block->bytes = bytes;
        block->fill = (unsigned char)(next_random(&seed) | 1);
        MUST(cu.cuMemsetD8Async(block->at, block->fill, bytes, stream));
    }
    for (int k = 0; k < BLOCKS; k++) {
        finish(&blocks[k], stream, host, true);
    }
    MUST(cu.cuStreamDestroy(stream));
    free(host);
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
        return row();
    }
    first_seed = strtoull(argv[2], NULL, 10);
    rounds = (unsigned)strtoul(argv[3], NULL, 10);
    return at_random();
}
