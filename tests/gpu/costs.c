/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver's calls cost here: each timed many times, on the device and on host-located
 * memory, by size; and copies of a batch, by the ways that spilling takes and by a plain pinned
 * copy.
 *
 * costs ROUNDS BATCH_MIB prints a line of JSON a call and size: {"event": "cost", "call", "where":
 * "device" or "host", "bytes", "median_ns", "p99_ns", "rounds"}. Names are those of `memshim replay
 * --costs`; copies, and pinned_down and pinned_up, are per MiB. Beside these: "neighbours: CALL",
 * one call for so many bytes in chunks of a granule; "copying: CALL", of one granule while a batch
 * is on its way to the host, and "copying: copy_down", of that batch. */
#include <string.h>

#include "tests/gpu/gpu.h"

enum { ROUNDS_MAX = 1000, COPY_ROUNDS = 8, TOUCHED_MAX = 1024, NEIGHBOURS = 16 };

static struct gpu gpu;
static unsigned rounds;
static uint64_t taken_ns[ROUNDS_MAX];
static unsigned taken_count;
static uint64_t started_ns;

static void begin(void)
{
    started_ns = gpu_now_ns();
}

static uint64_t end(void)
{
    return gpu_now_ns() - started_ns;
}

static void take(uint64_t ns)
{
    if (taken_count < ROUNDS_MAX) {
        taken_ns[taken_count++] = ns;
    }
}

static int by_value(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* What was taken since the last time, `divisor` to one. */
static void say(const char *call, const char *where, uint64_t bytes, uint64_t divisor)
{
    if (taken_count == 0) {
        return;
    }
    qsort(taken_ns, taken_count, sizeof *taken_ns, by_value);
    (void)printf("{\"event\": \"cost\", \"call\": \"%s\", \"where\": \"%s\", \"bytes\": %llu, "
                 "\"median_ns\": %llu, \"p99_ns\": %llu, \"rounds\": %u}\n",
                 call, where, (unsigned long long)bytes,
                 (unsigned long long)(taken_ns[taken_count / 2] / divisor),
                 (unsigned long long)(taken_ns[(taken_count * 99 - 1) / 100] / divisor),
                 taken_count);
    (void)fflush(stdout);
    taken_count = 0;
}

/* The five calls of a chunk's life, each with its own times. */
enum step { CREATE, MAP, SET_ACCESS, UNMAP, RELEASE, STEPS };

static void one_life(CUdeviceptr at, size_t bytes, const CUmemAllocationProp *prop,
                     uint64_t took_ns[STEPS])
{
    CUmemGenericAllocationHandle chunk;
    begin();
    MUST(cuMemCreate(&chunk, bytes, prop, 0));
    took_ns[CREATE] = end();
    begin();
    MUST(cuMemMap(at, bytes, 0, chunk, 0));
    took_ns[MAP] = end();
    begin();
    MUST(gpu_allow(&gpu, at, bytes));
    took_ns[SET_ACCESS] = end();
    /* Memory in use is what gets unmapped. */
    MUST(cuMemsetD8(at, 1, bytes < TOUCHED_MAX ? bytes : TOUCHED_MAX));
    MUST(cuCtxSynchronize());
    begin();
    MUST(cuMemUnmap(at, bytes));
    took_ns[UNMAP] = end();
    begin();
    MUST(cuMemRelease(chunk));
    took_ns[RELEASE] = end();
}

static void lives(const char *where, const CUmemAllocationProp *prop, size_t bytes)
{
    static const char *const names[STEPS] = {"create", "map", "set_access", "unmap", "release"};
    static uint64_t took_ns[ROUNDS_MAX][STEPS];
    CUdeviceptr at;
    MUST(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    for (unsigned round = 0; round < rounds; round++) {
        one_life(at, bytes, prop, took_ns[round]);
    }
    MUST(cuMemAddressFree(at, bytes));
    for (int step = 0; step < STEPS; step++) {
        for (unsigned round = 0; round < rounds; round++) {
            take(took_ns[round][step]);
        }
        say(names[step], where, bytes, 1);
    }
}

/* What one call for many chunks saves. */
static void neighbours(const char *where, const CUmemAllocationProp *prop)
{
    static uint64_t unmapping_ns[ROUNDS_MAX];
    CUdeviceptr at;
    const size_t granule = gpu.granule_bytes;
    const size_t bytes = NEIGHBOURS * granule;
    MUST(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    for (unsigned round = 0; round < rounds; round++) {
        CUmemGenericAllocationHandle chunks[NEIGHBOURS];
        for (size_t i = 0; i < NEIGHBOURS; i++) {
            MUST(cuMemCreate(&chunks[i], granule, prop, 0));
            MUST(cuMemMap(at + i * granule, granule, 0, chunks[i], 0));
        }
        begin();
        MUST(gpu_allow(&gpu, at, bytes));
        take(end());
        MUST(cuMemsetD8(at, 1, bytes));
        MUST(cuCtxSynchronize());
        begin();
        MUST(cuMemUnmap(at, bytes));
        unmapping_ns[round] = end();
        for (size_t i = 0; i < NEIGHBOURS; i++) {
            MUST(cuMemRelease(chunks[i]));
        }
    }
    MUST(cuMemAddressFree(at, bytes));
    say("neighbours: set_access", where, bytes, 1);
    for (unsigned round = 0; round < rounds; round++) {
        take(unmapping_ns[round]);
    }
    say("neighbours: unmap", where, bytes, 1);
}

/* Whether calls wait for copies, and copies for calls. */
static void while_copying(const char *where, const CUmemAllocationProp *prop, CUdeviceptr to,
                          CUdeviceptr from, size_t batch)
{
    static uint64_t unmapping_ns[ROUNDS_MAX];
    CUmemGenericAllocationHandle chunk;
    CUdeviceptr at;
    CUstream stream;
    unsigned calls = 0;
    const size_t granule = gpu.granule_bytes;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAddressReserve(&at, granule, 0, 0, 0));
    MUST(cuMemCreate(&chunk, granule, prop, 0));
    const uint64_t start_ns = gpu_now_ns();
    MUST(cuMemcpyAsync(to, from, batch, stream));
    while (calls < ROUNDS_MAX && cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
        MUST(cuMemMap(at, granule, 0, chunk, 0));
        begin();
        MUST(gpu_allow(&gpu, at, granule));
        take(end());
        begin();
        MUST(cuMemUnmap(at, granule));
        unmapping_ns[calls++] = end();
    }
    MUST(cuStreamSynchronize(stream));
    const uint64_t copy_ns = gpu_now_ns() - start_ns;
    say("copying: set_access", where, granule, 1);
    for (unsigned call = 0; call < calls; call++) {
        take(unmapping_ns[call]);
    }
    say("copying: unmap", where, granule, 1);
    take(copy_ns);
    say("copying: copy_down", where, MIB, batch / MIB);
    MUST(cuMemRelease(chunk));
    MUST(cuMemAddressFree(at, granule));
    MUST(cuStreamDestroy(stream));
}

static void addresses(void)
{
    static uint64_t freeing_ns[ROUNDS_MAX];
    for (unsigned round = 0; round < rounds; round++) {
        CUdeviceptr at;
        begin();
        MUST(cuMemAddressReserve(&at, GIB, 0, 0, 0));
        take(end());
        begin();
        MUST(cuMemAddressFree(at, GIB));
        freeing_ns[round] = end();
    }
    say("reserve", "device", GIB, 1);
    for (unsigned round = 0; round < rounds; round++) {
        take(freeing_ns[round]);
    }
    say("reserve_free", "device", GIB, 1);
}

/* What knowing the order of streams costs: events, and a device with nothing to do. */
static void marks(void)
{
    CUstream streams[2];
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 2; i++) {
        MUST(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    }
#define TIMES(name, call)                               \
    for (unsigned round = 0; round < rounds; round++) { \
        begin();                                        \
        MUST(call);                                     \
        take(end());                                    \
    }                                                   \
    MUST(cuCtxSynchronize());                           \
    say(name, "device", 0, 1)
    TIMES("mark", cuEventRecord(event, streams[0]));
    TIMES("mark_query", cuEventQuery(event));
    TIMES("mark_wait", cuEventSynchronize(event));
    TIMES("stream_wait", cuStreamWaitEvent(streams[1], event, 0));
    TIMES("halt", cuCtxSynchronize());
#undef TIMES
    for (int i = 0; i < 2; i++) {
        MUST(cuStreamDestroy(streams[i]));
    }
    MUST(cuEventDestroy(event));
}

static void copies(const char *call, CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    for (int round = 0; round <= COPY_ROUNDS; round++) {
        begin();
        MUST(cuMemcpyAsync(to, from, bytes, NULL));
        MUST(cuStreamSynchronize(NULL));
        if (round > 0) { /* the first one warms up */
            take(end());
        }
    }
    say(call, "device", MIB, bytes / MIB);
}

static CUdeviceptr shown(const CUmemAllocationProp *prop, size_t bytes)
{
    CUmemGenericAllocationHandle chunk;
    CUdeviceptr at;
    MUST(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    MUST(cuMemCreate(&chunk, bytes, prop, 0));
    MUST(cuMemMap(at, bytes, 0, chunk, 0));
    MUST(cuMemRelease(chunk));
    MUST(gpu_allow(&gpu, at, bytes));
    MUST(cuMemsetD8(at, 5, bytes));
    MUST(cuCtxSynchronize());
    return at;
}

int main(int argc, char **argv)
{
    static const size_t sizes_mib[] = {2, 16, 32, 128};
    CUmemAllocationProp host;
    void *pinned;
    EXPECT(argc == 3);
    rounds = (unsigned)strtoul(argv[1], NULL, 10);
    size_t batch = strtoull(argv[2], NULL, 10) * MIB;
    EXPECT(rounds > 0 && rounds <= ROUNDS_MAX && batch > 0);
    gpu_open(&gpu);
    EXPECT(gpu.granule_bytes != 0);
    CUmemAllocationProp device = gpu_device_memory(&gpu);
    int has_host = gpu_host_memory(&gpu, &host) == 0;
    addresses();
    marks();
    for (size_t i = 0; i < sizeof sizes_mib / sizeof *sizes_mib; i++) {
        lives("device", &device, sizes_mib[i] * MIB);
        if (has_host) {
            lives("host", &host, sizes_mib[i] * MIB);
        }
    }
    neighbours("device", &device);
    if (has_host) {
        neighbours("host", &host);
    }
    CUdeviceptr there = shown(&device, batch);
    MUST(cuMemAllocHost(&pinned, batch));
    memset(pinned, 3, batch);
    copies("pinned_down", (CUdeviceptr)(uintptr_t)pinned, there, batch);
    copies("pinned_up", there, (CUdeviceptr)(uintptr_t)pinned, batch);
    if (has_host) {
        CUdeviceptr here = shown(&host, batch);
        copies("copy_down", here, there, batch);
        copies("copy_up", there, here, batch);
        while_copying("device", &device, here, there, batch);
        while_copying("host", &host, here, there, batch);
    }
    return 0;
}
