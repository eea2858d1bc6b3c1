/* SPDX-License-Identifier: Apache-2.0 */
/* Eight threads, many streams, every block's contents checked: each thread fills a block on its
 * stream, copies it to the host on the same stream and frees it at once, in stream order or not,
 * while the other threads want the same memory. A block that is handed out before its last use is
 * over arrives on the host with somebody else's bytes.
 *
 * Arguments: seed, rounds a thread. SIMGPU_DELAY_US spreads the operations in time. */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "driver.h"
#include "say.h"

enum { THREADS = 8, STREAMS = 4, SLOTS = 6, SLOT_BYTES = 192 * 1024 };

static struct driver cu;
static CUcontext context;
static CUstream streams[THREADS][STREAMS];
static CUmemoryPool own_pool;
static unsigned rounds;
static uint64_t first_seed;

/* A block whose copy is under way, and what has to arrive. */
struct slot {
    unsigned char *host;
    size_t bytes;
    unsigned char fill;
    CUstream stream;
};

static void check_slot(struct slot *slot)
{
    if (slot->bytes == 0) {
        return;
    }
    MUST(cu.cuStreamSynchronize(slot->stream));
    for (size_t i = 0; i < slot->bytes; i++) {
        if (slot->host[i] != slot->fill) {
            (void)fprintf(stderr,
                          "byte %zu of %zu is %02x, not %02x: memory was handed out early\n", i,
                          slot->bytes, slot->host[i], slot->fill);
            exit(1);
        }
    }
    slot->bytes = 0;
}

static void allocate(CUdeviceptr *at, size_t bytes, CUstream stream, unsigned way)
{
    CUresult result;
    if (way < 6) {
        result = cu.cuMemAllocAsync(at, bytes, stream);
    } else if (way < 8) {
        result = cu.cuMemAllocFromPoolAsync(at, bytes, own_pool, stream);
    } else {
        result = cu.cuMemAlloc(at, bytes);
    }
    MUST(result);
}

/* Frees while the copy is still queued: in the same stream, in another one that waits for it, or
 * as cuMemFree, which waits for the device. */
static void release(CUdeviceptr at, bool ordered, CUstream stream, CUstream other, unsigned way)
{
    CUevent event;
    if (way < 5) {
        MUST(cu.cuMemFreeAsync(at, stream));
    } else if (way < 8) {
        MUST(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        MUST(cu.cuEventRecord(event, stream));
        MUST(cu.cuStreamWaitEvent(other, event, 0));
        MUST(cu.cuMemFreeAsync(at, other));
        MUST(cu.cuEventDestroy(event));
    } else {
        if (ordered) {
            MUST(cu.cuStreamSynchronize(stream)); /* cuMemFree does not wait for this memory */
        }
        MUST(cu.cuMemFree(at));
    }
}

static void *work(void *argument)
{
    size_t self = (size_t)(uintptr_t)argument;
    uint64_t seed = first_seed * 1000 + self;
    struct slot slots[SLOTS] = {0};
    MUST(cu.cuCtxSetCurrent(context));
    for (int i = 0; i < SLOTS; i++) {
        void *host;
        MUST(cu.cuMemAllocHost(&host, SLOT_BYTES));
        slots[i].host = host;
    }
    for (unsigned round = 0; round < rounds; round++) {
        uint64_t draw = next_random(&seed);
        struct slot *slot = &slots[round % SLOTS];
        check_slot(slot);
        /* Now and then the legacy default stream, which waits for all blocking streams. */
        CUstream stream = draw % 16 == 0 ? NULL : streams[self][draw / 16 % STREAMS];
        CUstream other = streams[self][draw / 64 % STREAMS];
        size_t bytes = (size_t)(draw / 256 % SLOT_BYTES) + 1;
        /* A large block whose beginning alone is looked at, so that chunks move. */
        size_t asked = draw / 1024 % 10 == 0 ? bytes + 5 * MIB : bytes;
        CUdeviceptr at;
        const unsigned how = (unsigned)(draw / 4096 % 10);
        allocate(&at, asked, stream, how);
        slot->fill = (unsigned char)(next_random(&seed) | 1);
        slot->bytes = bytes;
        slot->stream = stream;
        memset(slot->host, 0, bytes);
        if (draw % 16 == 0) {
            MUST(cu.cuCtxSynchronize());
        }
        MUST(cu.cuMemsetD8Async(at, slot->fill, bytes, stream));
        MUST(cu.cuMemcpyDtoHAsync(slot->host, at, bytes, stream));
        release(at, how < 8, stream, other, (unsigned)(draw / 65536 % 10));
    }
    for (int i = 0; i < SLOTS; i++) {
        check_slot(&slots[i]);
        MUST(cu.cuMemFreeHost(slots[i].host));
    }
    return NULL;
}

int main(int argc, char **argv)
{
    CUdevice device;
    pthread_t threads[THREADS];
    EXPECT(argc == 3);
    first_seed = strtoull(argv[1], NULL, 10);
    rounds = (unsigned)strtoul(argv[2], NULL, 10);
    cu = driver_open();
    MUST(cu.cuInit(0));
    MUST(cu.cuDeviceGet(&device, 0));
    MUST(cu.cuDevicePrimaryCtxRetain(&context, device));
    MUST(cu.cuCtxSetCurrent(context));
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    MUST(cu.cuMemPoolCreate(&own_pool, &props));
    for (int i = 0; i < THREADS * STREAMS; i++) {
        MUST(cu.cuStreamCreate(&streams[i / STREAMS][i % STREAMS],
                               i % 3 == 0 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    }
    for (size_t i = 0; i < THREADS; i++) {
        MUST(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i));
    }
    for (int i = 0; i < THREADS; i++) {
        MUST(pthread_join(threads[i], NULL));
    }
    for (int i = 0; i < THREADS * STREAMS; i++) {
        MUST(cu.cuStreamDestroy(streams[i / STREAMS][i % STREAMS]));
    }
    MUST(cu.cuCtxSynchronize());
    MUST(cu.cuMemPoolDestroy(own_pool));
    MUST(cu.cuDevicePrimaryCtxRelease(device));
    (void)printf("%u rounds in each of %d threads, every byte as it was written\n", rounds,
                 THREADS);
    return 0;
}
