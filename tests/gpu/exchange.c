/* SPDX-License-Identifier: Apache-2.0 */
/* What moving a batch between device and host memory takes under unchanged addresses, by the
 * driver's calls alone, in several ways, and which call takes how much of it: what spilling could
 * reach here at best.
 *
 * As allocator/spill/move.c does it: the new memory is accessible at other addresses beforehand;
 * pieces are copied there, and once one is copied, the old memory leaves its addresses and the new
 * one is mapped in its place.
 *
 * exchange BATCH_MIB ROUNDS prints a line of JSON for each way: {"event": "exchange", "way": "down"
 * or "up", "device_mib" (a chunk there), "part_mib" (a copy), "access": "beside" (given for each
 * piece, while the next ones are copied) or "behind" (for all at once, when all is copied),
 * "total_ns" (the median; these are of its round:) "waited_ns" (for copies), "unmap_ns", "map_ns",
 * "access_ns"}; and of giving access beside copies that go in such parts: {"event": "beside",
 * "part_mib", "access_ns" (the median), "longest_ns", "calls"}. */
#include <string.h>

#include "tests/gpu/gpu.h"

enum { ROUNDS_MAX = 64, CHUNKS_MAX = 1024, PIECES_MAX = 64, BESIDE_MAX = 64 };
#define PIECE_BYTES (32 * MIB) /* and a chunk on the host */

static struct gpu gpu;
static size_t batch;
static CUstream stream;

struct times {
    uint64_t total, waited, unmap, map, access;
};

/* Memory of one kind, a batch in chunks of one size. */
struct side {
    CUmemGenericAllocationHandle chunks[CHUNKS_MAX];
    size_t count, chunk_bytes;
};

struct way {
    int down, behind;
    size_t device_bytes, part_bytes;
};

static void make(struct side *side, const CUmemAllocationProp *prop, size_t chunk_bytes)
{
    side->chunk_bytes = chunk_bytes;
    side->count = batch / chunk_bytes;
    EXPECT(side->count > 0 && side->count <= CHUNKS_MAX && side->count * chunk_bytes == batch);
    for (size_t i = 0; i < side->count; i++) {
        MUST(cuMemCreate(&side->chunks[i], chunk_bytes, prop, 0));
    }
}

static void release(const struct side *side)
{
    for (size_t i = 0; i < side->count; i++) {
        MUST(cuMemRelease(side->chunks[i]));
    }
}

/* What stands for these bytes of the batch. */
static void map(const struct side *side, CUdeviceptr at, size_t offset, size_t bytes)
{
    size_t end = (offset + bytes) / side->chunk_bytes;
    for (size_t i = offset / side->chunk_bytes; i < end; i++) {
        MUST(cuMemMap(at + i * side->chunk_bytes, side->chunk_bytes, 0, side->chunks[i], 0));
    }
}

static void queue_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, size_t part_bytes)
{
    for (size_t done = 0; done < bytes; done += part_bytes) {
        size_t part = bytes - done < part_bytes ? bytes - done : part_bytes;
        MUST(cuMemcpyAsync(to + done, from + done, part, stream));
    }
}

static uint64_t since(uint64_t *at_ns)
{
    uint64_t now = gpu_now_ns();
    uint64_t took_ns = now - *at_ns;
    *at_ns = now;
    return took_ns;
}

/* `old` stands at `at`, `fresh` aside. */
static struct times exchange(const struct way *way, CUdeviceptr at, CUdeviceptr aside,
                             const struct side *fresh, CUevent *copied)
{
    struct times times = {0};
    size_t piece = batch < PIECE_BYTES ? batch : PIECE_BYTES;
    uint64_t start_ns = gpu_now_ns();
    uint64_t at_ns = start_ns;
    for (size_t offset = 0, i = 0; offset < batch; offset += piece, i++) {
        queue_copy(aside + offset, at + offset, piece, way->part_bytes);
        MUST(cuEventRecord(copied[i], stream));
    }
    for (size_t offset = 0, i = 0; offset < batch; offset += piece, i++) {
        (void)since(&at_ns);
        MUST(cuEventSynchronize(copied[i]));
        times.waited += since(&at_ns);
        MUST(cuMemUnmap(at + offset, piece));
        times.unmap += since(&at_ns);
        map(fresh, at, offset, piece);
        times.map += since(&at_ns);
        if (!way->behind) {
            MUST(gpu_allow(&gpu, at + offset, piece));
            times.access += since(&at_ns);
        }
    }
    if (way->behind) {
        MUST(gpu_allow(&gpu, at, batch));
        times.access = since(&at_ns);
    }
    times.total = gpu_now_ns() - start_ns;
    return times;
}

static int by_total(const void *a, const void *b)
{
    uint64_t left = ((const struct times *)a)->total;
    uint64_t right = ((const struct times *)b)->total;
    return left < right ? -1 : left > right;
}

static CUdeviceptr reserve(void)
{
    CUdeviceptr at;
    MUST(cuMemAddressReserve(&at, batch, 0, 0, 0));
    return at;
}

static void run_way(const struct way *way, const struct side *device, const struct side *host,
                    unsigned rounds)
{
    static struct times taken[ROUNDS_MAX];
    CUevent copied[PIECES_MAX];
    const struct side *old = way->down ? device : host;
    const struct side *fresh = way->down ? host : device;
    CUdeviceptr at = reserve();
    CUdeviceptr aside = reserve();
    for (int i = 0; i < PIECES_MAX; i++) {
        MUST(cuEventCreate(&copied[i], CU_EVENT_DISABLE_TIMING));
    }
    for (unsigned round = 0; round < rounds; round++) {
        map(old, at, 0, batch);
        MUST(gpu_allow(&gpu, at, batch));
        map(fresh, aside, 0, batch);
        MUST(gpu_allow(&gpu, aside, batch));
        MUST(cuMemsetD8(at, (unsigned char)round, batch));
        MUST(cuCtxSynchronize());
        taken[round] = exchange(way, at, aside, fresh, copied);
        EXPECT(gpu_is_simulated() || gpu_mismatches(&gpu, at, batch, round) == 0);
        MUST(cuMemUnmap(at, batch));
        MUST(cuMemUnmap(aside, batch));
    }
    for (int i = 0; i < PIECES_MAX; i++) {
        MUST(cuEventDestroy(copied[i]));
    }
    MUST(cuMemAddressFree(at, batch));
    MUST(cuMemAddressFree(aside, batch));
    qsort(taken, rounds, sizeof *taken, by_total);
    const struct times *median = &taken[rounds / 2];
    (void)printf("{\"event\": \"exchange\", \"way\": \"%s\", \"device_mib\": %zu, \"part_mib\": "
                 "%zu, \"access\": \"%s\", \"total_ns\": %llu, \"waited_ns\": %llu, \"unmap_ns\": "
                 "%llu, \"map_ns\": %llu, \"access_ns\": %llu}\n",
                 way->down ? "down" : "up", (size_t)(way->device_bytes / MIB),
                 (size_t)(way->part_bytes / MIB), way->behind ? "behind" : "beside",
                 (unsigned long long)median->total, (unsigned long long)median->waited,
                 (unsigned long long)median->unmap, (unsigned long long)median->map,
                 (unsigned long long)median->access);
    (void)fflush(stdout);
}

/* --- access beside copies ----------------------------------------------------------------------
 */

static int by_value(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* To one granule, as often as fits beside the copy of a batch. */
static void beside(const struct side *device, const struct side *host, size_t part_bytes)
{
    uint64_t taken_ns[BESIDE_MAX];
    size_t calls = 0;
    CUmemGenericAllocationHandle chunk;
    CUmemAllocationProp prop = gpu_device_memory(&gpu);
    CUdeviceptr from = reserve();
    CUdeviceptr to = reserve();
    CUdeviceptr at;
    MUST(cuMemAddressReserve(&at, gpu.granule_bytes, 0, 0, 0));
    MUST(cuMemCreate(&chunk, gpu.granule_bytes, &prop, 0));
    map(device, from, 0, batch);
    map(host, to, 0, batch);
    MUST(gpu_allow(&gpu, from, batch));
    MUST(gpu_allow(&gpu, to, batch));
    queue_copy(to, from, batch, part_bytes);
    while (calls < BESIDE_MAX) {
        MUST(cuMemMap(at, gpu.granule_bytes, 0, chunk, 0));
        uint64_t start_ns = gpu_now_ns();
        MUST(gpu_allow(&gpu, at, gpu.granule_bytes));
        uint64_t took_ns = gpu_now_ns() - start_ns;
        MUST(cuMemUnmap(at, gpu.granule_bytes));
        if (cuStreamQuery(stream) != CUDA_ERROR_NOT_READY) {
            break; /* that one may have had the bus for itself */
        }
        taken_ns[calls++] = took_ns;
    }
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemUnmap(from, batch));
    MUST(cuMemUnmap(to, batch));
    MUST(cuMemRelease(chunk));
    MUST(cuMemAddressFree(at, gpu.granule_bytes));
    MUST(cuMemAddressFree(from, batch));
    MUST(cuMemAddressFree(to, batch));
    if (calls == 0) {
        return;
    }
    qsort(taken_ns, calls, sizeof *taken_ns, by_value);
    (void)printf("{\"event\": \"beside\", \"part_mib\": %zu, \"access_ns\": %llu, \"longest_ns\": "
                 "%llu, \"calls\": %zu}\n",
                 (size_t)(part_bytes / MIB), (unsigned long long)taken_ns[calls / 2],
                 (unsigned long long)taken_ns[calls - 1], calls);
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    static const size_t chunks_mib[] = {2, 16};
    static const size_t parts_mib[] = {4, 32};
    static const size_t beside_mib[] = {1, 4, 16, 64, 256};
    static struct side device;
    static struct side host;
    CUmemAllocationProp host_memory;
    EXPECT(argc == 3);
    batch = strtoull(argv[1], NULL, 10) * MIB;
    unsigned rounds = (unsigned)strtoul(argv[2], NULL, 10);
    EXPECT(batch >= 16 * MIB && batch <= PIECES_MAX * PIECE_BYTES);
    EXPECT(rounds > 0 && rounds <= ROUNDS_MAX);
    gpu_open(&gpu);
    if (gpu.granule_bytes == 0 || gpu_host_memory(&gpu, &host_memory) != 0) {
        return 0;
    }
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUmemAllocationProp device_memory = gpu_device_memory(&gpu);
    make(&host, &host_memory, batch < PIECE_BYTES ? batch : PIECE_BYTES);
    for (size_t i = 0; i < 2; i++) {
        make(&device, &device_memory, chunks_mib[i] * MIB);
        for (unsigned kind = 0; kind < 8; kind++) {
            struct way way = {.down = kind < 4,
                              .behind = kind % 2 == 1,
                              .device_bytes = chunks_mib[i] * MIB,
                              .part_bytes = parts_mib[kind / 2 % 2] * MIB};
            run_way(&way, &device, &host, rounds);
        }
        for (size_t k = 0; i == 0 && k < sizeof beside_mib / sizeof *beside_mib; k++) {
            beside(&device, &host, beside_mib[k] * MIB);
        }
        release(&device);
    }
    release(&host);
    return 0;
}
