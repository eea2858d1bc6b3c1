/* SPDX-License-Identifier: Apache-2.0 */
/* A framework that keeps memory short, and checks every tensor's bytes: several threads on each
 * device take tensors from a caching allocator (repair_allocator.h), fill them on their stream,
 * copy them to each other, across streams and devices, and look at their bytes once more before
 * they free them, all of it queued and none of it waited for. What memshim takes out of holes too
 * early, puts back too late or under two tensors arrives on the host as somebody else's bytes.
 *
 * Arguments: segments or pages, seed, rounds a thread, MiB of live tensors on each device, threads
 * on each device. Uses all devices, at most four. Ends with a line of JSON. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "repair_allocator.h"
#include "say.h"

enum {
    DEVICES = 4,
    STREAMS = 2, /* of a thread on a device */
    SLOTS = 6,
    TENSORS = 512, /* of a thread */
    USERS = 3,
    ROW_BYTES = 64,
    STEP_BYTES = 4096, /* from one row looked at to the next */
    LARGEST_BYTES = 12 << 20,
    SLOT_BYTES = (LARGEST_BYTES / STEP_BYTES + 2) * ROW_BYTES,
    PHASE_ROUNDS = 250,
};

static struct {
    CUdevice device;
    CUcontext context;
    struct repair_allocator *allocator;
} devices[DEVICES];
static int device_count;
static unsigned rounds, threads_per_device;
static uint64_t first_seed, live_limit_bytes; /* of a thread on a device */
static _Atomic uint64_t tensors_checked, rows_checked;

struct tensor {
    int device;
    CUdeviceptr at;
    size_t bytes; /* a multiple of 512 */
    CUstream stream;
    uint32_t pattern; /* of each of its words */
    CUevent users[USERS];
    size_t user_count;
};

/* Bytes on their way to the host, and what they have to be. */
struct slot {
    uint32_t *host;
    size_t rows;
    uint32_t pattern;
    CUevent arrived;
    struct tensor tensor; /* for the complaint */
};

struct worker {
    pthread_t thread;
    int home;
    uint64_t seed;
    uint32_t next_pattern;
    CUstream streams[DEVICES][STREAMS];
    struct tensor tensors[TENSORS];
    size_t count;
    uint64_t live_bytes[DEVICES];
    struct slot slots[SLOTS];
    size_t next_slot;
};

static void use_device(int device)
{
    MUST(cuCtxSetCurrent(devices[device].context));
}

static CUevent recorded_event(CUstream stream)
{
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(event, stream));
    return event;
}

/* --- Looking -----------------------------------------------------------------------------------
 */

/* What the device writes is nothing that the thread sanitizer could judge (simgpu keeps it from
 * it). words: all of them. */
__attribute__((no_sanitize("thread"))) static size_t first_wrong(const uint32_t *row, size_t words,
                                                                 uint32_t pattern)
{
    size_t i = 0;
    while (i < words && row[i] == pattern) {
        i++;
    }
    return i;
}

static void check_slot(struct slot *slot)
{
    if (slot->rows == 0) {
        return;
    }
    MUST(cuEventSynchronize(slot->arrived));
    MUST(cuEventDestroy(slot->arrived));
    size_t words = slot->rows * ROW_BYTES / sizeof(slot->host[0]);
    size_t wrong = first_wrong(slot->host, words, slot->pattern);
    if (wrong < words) {
        size_t at = wrong * sizeof(slot->host[0]);
        (void)fprintf(stderr,
                      "WRONG BYTES: device %d, %zu bytes at 0x%llx: row %zu of %zu, byte %zu: "
                      "%08" PRIx32 ", not %08" PRIx32 "\n",
                      slot->tensor.device, slot->tensor.bytes, slot->tensor.at, at / ROW_BYTES,
                      slot->rows, at % ROW_BYTES, slot->host[wrong], slot->pattern);
        exit(1);
    }
    atomic_fetch_add(&tensors_checked, 1);
    atomic_fetch_add(&rows_checked, slot->rows);
    slot->rows = 0;
}

/* A row of each page, and the last row. */
static void look(struct worker *worker, const struct tensor *tensor)
{
    struct slot *slot = &worker->slots[worker->next_slot++ % SLOTS];
    check_slot(slot);
    size_t rows = (tensor->bytes - ROW_BYTES) / STEP_BYTES + 1;
    CUDA_MEMCPY2D first_rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = tensor->at,
                                .srcPitch = STEP_BYTES,
                                .dstMemoryType = CU_MEMORYTYPE_HOST,
                                .dstHost = slot->host,
                                .dstPitch = ROW_BYTES,
                                .WidthInBytes = ROW_BYTES,
                                .Height = rows};
    memset(slot->host, 0, (rows + 1) * ROW_BYTES);
    MUST(cuMemcpy2DAsync(&first_rows, tensor->stream));
    MUST(cuMemcpyDtoHAsync(slot->host + rows * ROW_BYTES / sizeof(slot->host[0]),
                           tensor->at + tensor->bytes - ROW_BYTES, ROW_BYTES, tensor->stream));
    slot->rows = rows + 1;
    slot->pattern = tensor->pattern;
    slot->arrived = recorded_event(tensor->stream);
    slot->tensor = *tensor;
}

/* --- Births, copies, deaths --------------------------------------------------------------------
 */

static void kill_tensor(struct worker *worker, size_t index)
{
    struct tensor tensor = worker->tensors[index];
    worker->tensors[index] = worker->tensors[--worker->count];
    worker->live_bytes[tensor.device] -= tensor.bytes;
    use_device(tensor.device);
    look(worker, &tensor);
    repair_free(devices[tensor.device].allocator, tensor.at, tensor.users, tensor.user_count);
}

static void kill_some(struct worker *worker, unsigned one_in)
{
    for (size_t i = worker->count; i-- > 0;) {
        if (next_random(&worker->seed) % one_in == 0) {
            kill_tensor(worker, i);
        }
    }
}

/* The source's bytes become the target's, in the order of the target's stream. */
static void copy_tensor(struct tensor *target, struct tensor *source)
{
    bool other = source->stream != target->stream;
    if (source->bytes < target->bytes || (other && source->user_count == USERS)) {
        return;
    }
    if (other) {
        use_device(source->device);
        CUevent written = recorded_event(source->stream);
        use_device(target->device);
        MUST(cuStreamWaitEvent(target->stream, written, 0));
        MUST(cuEventDestroy(written));
    }
    MUST(cuMemcpyDtoDAsync(target->at, source->at, target->bytes, target->stream));
    target->pattern = source->pattern;
    if (other) {
        source->users[source->user_count++] = recorded_event(target->stream);
    }
}

/* Sizes change from phase to phase, so that what one phase frees the next one cannot use. */
static size_t draw_bytes(uint64_t draw, unsigned phase)
{
    static const size_t largest[3][4] = {{4 * KIB, 64 * KIB, 256 * KIB, MIB},
                                         {MIB, 3 * MIB, 5 * MIB, 6 * MIB},
                                         {2 * KIB, 512 * KIB, 4 * MIB, LARGEST_BYTES}};
    return (draw / 8 % largest[phase % 3][draw % 4] / 512 + 1) * 512;
}

static void bear_tensor(struct worker *worker, int device, size_t bytes)
{
    struct tensor *tensor = &worker->tensors[worker->count];
    uint64_t draw = next_random(&worker->seed);
    CUstream stream = worker->streams[device][draw % STREAMS];
    use_device(device);
    CUdeviceptr at = repair_alloc(devices[device].allocator, bytes, stream);
    if (at == 0) {
        kill_some(worker, 3);
        return;
    }
    *tensor = (struct tensor){.device = device,
                              .at = at,
                              .bytes = bytes,
                              .stream = stream,
                              .pattern = worker->next_pattern += 2654435761u};
    MUST(cuMemsetD32Async(at, tensor->pattern, bytes / 4, stream));
    if (worker->count > 0 && draw / 8 % 3 == 0) {
        copy_tensor(tensor, &worker->tensors[draw / 64 % worker->count]);
    }
    worker->count++;
    worker->live_bytes[device] += bytes;
}

static void take_turn(struct worker *worker, unsigned round)
{
    uint64_t draw = next_random(&worker->seed);
    int device = draw % 4 == 0 ? (int)(draw / 4 % (unsigned)device_count) : worker->home;
    size_t bytes = draw_bytes(next_random(&worker->seed), round / PHASE_ROUNDS);
    if (round % PHASE_ROUNDS == PHASE_ROUNDS - 1) {
        kill_some(worker, 2);
    }
    while (worker->count > 0 && (worker->live_bytes[device] + bytes > live_limit_bytes ||
                                 worker->count == TENSORS || draw / 16 % 4 == 0)) {
        kill_tensor(worker, next_random(&worker->seed) % worker->count);
        draw += 16;
    }
    bear_tensor(worker, device, bytes);
    if (draw / 1024 % 400 == 0) {
        use_device(device);
        repair_empty_cache(devices[device].allocator, worker->streams[device][0]);
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    for (int device = 0; device < device_count; device++) {
        use_device(device);
        for (int i = 0; i < STREAMS; i++) {
            MUST(cuStreamCreate(&worker->streams[device][i], CU_STREAM_NON_BLOCKING));
        }
    }
    for (int i = 0; i < SLOTS; i++) {
        void *host;
        MUST(cuMemAllocHost(&host, SLOT_BYTES));
        worker->slots[i].host = host;
    }
    for (unsigned round = 0; round < rounds; round++) {
        take_turn(worker, round);
    }
    while (worker->count > 0) {
        kill_tensor(worker, 0);
    }
    for (int i = 0; i < SLOTS; i++) {
        check_slot(&worker->slots[i]);
    }
    return NULL;
}

/* --- Devices -----------------------------------------------------------------------------------
 */

static void open_devices(enum repair_arenas kind)
{
    MUST(cuInit(0));
    MUST(cuDeviceGetCount(&device_count));
    device_count = device_count < DEVICES ? device_count : DEVICES;
    for (int i = 0; i < device_count; i++) {
        MUST(cuDeviceGet(&devices[i].device, i));
        MUST(cuDevicePrimaryCtxRetain(&devices[i].context, devices[i].device));
    }
    for (int i = 0; i < device_count; i++) {
        CUdevice peers[DEVICES];
        size_t peer_count = 0;
        use_device(i);
        for (int j = 0; j < device_count; j++) {
            if (j != i) {
                MUST(cuCtxEnablePeerAccess(devices[j].context, 0));
                peers[peer_count++] = devices[j].device;
            }
        }
        devices[i].allocator = repair_allocator_new(devices[i].device, kind, peers, peer_count);
    }
}

static void say_end(void)
{
    (void)printf("{\"tensors\": %" PRIu64 ", \"rows\": %" PRIu64 ", \"devices\": [",
                 atomic_load(&tensors_checked), atomic_load(&rows_checked));
    for (int i = 0; i < device_count; i++) {
        struct repair_stats stats = repair_stats_of(devices[i].allocator);
        (void)printf("%s{\"live\": %" PRIu64 ", \"peak_live\": %" PRIu64 ", \"peak_held\": %" PRIu64
                     ", \"refused\": %" PRIu64 "}",
                     i > 0 ? ", " : "", stats.live_bytes, stats.peak_live_bytes,
                     stats.peak_held_bytes, stats.refused);
    }
    (void)printf("]}\n");
}

int main(int argc, char **argv)
{
    EXPECT(argc == 6);
    first_seed = strtoull(argv[2], NULL, 10);
    rounds = (unsigned)strtoul(argv[3], NULL, 10);
    threads_per_device = (unsigned)strtoul(argv[5], NULL, 10);
    live_limit_bytes = strtoull(argv[4], NULL, 10) * MIB / threads_per_device;
    open_devices(strcmp(argv[1], "pages") == 0 ? REPAIR_PAGES : REPAIR_SEGMENTS);
    size_t count = threads_per_device * (size_t)device_count;
    struct worker *workers = calloc(count, sizeof(*workers));
    EXPECT(workers != NULL);
    for (size_t i = 0; i < count; i++) {
        workers[i].home = (int)(i % (size_t)device_count);
        workers[i].seed = first_seed * 1000 + i;
        workers[i].next_pattern = (uint32_t)(i << 20);
        MUST(pthread_create(&workers[i].thread, NULL, work, &workers[i]));
    }
    for (size_t i = 0; i < count; i++) {
        MUST(pthread_join(workers[i].thread, NULL));
    }
    say_end();
    free(workers);
    return 0;
}
