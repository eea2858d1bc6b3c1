/* SPDX-License-Identifier: Apache-2.0 */
/* How long calls of the host take while work is queued or runs, and whether they wait for it.
 * Nothing is taken for granted: times and answers are left. */
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/assume.h"

enum { LONG_NS = 30000000 };

static void measured_us(const char *question, uint64_t duration_ns)
{
    assume_measured(question, (long long)(duration_ns / 1000), "us");
}

static uint64_t larger(uint64_t one, uint64_t other)
{
    return one > other ? one : other;
}

/* --- queues ----------------------------------------------------------------------------------- */

enum { KERNELS = 1024, WAITS = 8192, EVENTS = 64 };

/* Behind a kernel that runs for a while. */
static enum verdict queue_kernels(const struct gpu *gpu, CUstream stream)
{
    uint64_t longest_ns = 0;
    WORKS(gpu_spin(gpu, LONG_NS, stream));
    for (int i = 0; i < KERNELS; i++) {
        uint64_t start = gpu_now_ns();
        WORKS(gpu_spin(gpu, 0, stream));
        longest_ns = larger(longest_ns, gpu_now_ns() - start);
    }
    bool busy = cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
    measured_us("the longest of 1,024 launches behind a kernel", longest_ns);
    assume_whether("did the kernel still run after 1,024 launches behind it?", busy);
    return HOLDS;
}

/* Each for an event of its own behind those kernels. */
static enum verdict queue_waits(CUstream behind, CUstream stream)
{
    CUevent events[EVENTS];
    uint64_t record_ns = 0;
    uint64_t wait_ns = 0;
    uint64_t waits_ns = 0;
    for (int i = 0; i < EVENTS; i++) {
        WORKS(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
    }
    for (int i = 0; i < WAITS; i++) {
        uint64_t start = gpu_now_ns();
        WORKS(cuEventRecord(events[i % EVENTS], behind));
        uint64_t recorded = gpu_now_ns();
        WORKS(cuStreamWaitEvent(stream, events[i % EVENTS], 0));
        uint64_t waited = gpu_now_ns();
        record_ns = larger(record_ns, recorded - start);
        wait_ns = larger(wait_ns, waited - recorded);
        waits_ns += waited - recorded;
    }
    bool busy = cuStreamQuery(behind) == CUDA_ERROR_NOT_READY;
    measured_us("the longest of 8,192 records of an event behind them", record_ns);
    measured_us("the longest of 8,192 waits of a stream for those events", wait_ns);
    measured_us("all of those waits", waits_ns);
    assume_whether("did they still run after 8,192 waits for them?", busy);
    for (int i = 0; i < EVENTS; i++) {
        WORKS(cuEventDestroy(events[i]));
    }
    return HOLDS;
}

static enum verdict long_queues(const struct gpu *gpu)
{
    CUstream streams[2];
    for (int i = 0; i < 2; i++) {
        WORKS(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    }
    enum verdict verdict = queue_kernels(gpu, streams[0]);
    if (verdict == HOLDS) {
        verdict = queue_waits(streams[0], streams[1]);
    }
    WORKS(cuCtxSynchronize());
    for (int i = 0; i < 2; i++) {
        WORKS(cuStreamDestroy(streams[i]));
    }
    return verdict;
}

/* --- mapping ---------------------------------------------------------------------------------- */

struct times {
    uint64_t map, access, unmap;
};

static enum verdict time_mapping(const struct gpu *gpu, CUdeviceptr at,
                                 CUmemGenericAllocationHandle chunk, struct times *times)
{
    uint64_t start = gpu_now_ns();
    WORKS(cuMemMap(at, gpu->granule_bytes, 0, chunk, 0));
    uint64_t mapped = gpu_now_ns();
    WORKS(gpu_allow(gpu, at, gpu->granule_bytes));
    uint64_t allowed = gpu_now_ns();
    WORKS(cuMemUnmap(at, gpu->granule_bytes));
    *times = (struct times){mapped - start, allowed - mapped, gpu_now_ns() - allowed};
    return HOLDS;
}

static void say_times(const char *when, const struct times *times)
{
    char question[160];
    (void)snprintf(question, sizeof question, "cuMemMap of 2 MiB %s", when);
    measured_us(question, times->map);
    (void)snprintf(question, sizeof question, "cuMemSetAccess of 2 MiB %s", when);
    measured_us(question, times->access);
    (void)snprintf(question, sizeof question, "cuMemUnmap of 2 MiB %s", when);
    measured_us(question, times->unmap);
}

struct place {
    CUdeviceptr at;
    CUmemGenericAllocationHandle chunk;
};

static CUresult open_place(const struct gpu *gpu, struct place *place)
{
    CUmemAllocationProp prop = gpu_device_memory(gpu);
    CUresult result = cuMemAddressReserve(&place->at, gpu->granule_bytes, 0, 0, 0);
    return result == CUDA_SUCCESS ? cuMemCreate(&place->chunk, gpu->granule_bytes, &prop, 0)
                                  : result;
}

static CUresult close_place(const struct gpu *gpu, const struct place *place)
{
    CUresult result = cuMemRelease(place->chunk);
    return result == CUDA_SUCCESS ? cuMemAddressFree(place->at, gpu->granule_bytes) : result;
}

/* The kernel touches none of that memory. */
static enum verdict mapping_beside_a_kernel(const struct gpu *gpu)
{
    struct place place;
    struct times times = {0};
    CUstream stream;
    enum verdict verdict = HOLDS;
    NEEDS(gpu->granule_bytes != 0, "the device cannot map memory");
    WORKS(open_place(gpu, &place));
    WORKS(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 3 && verdict == HOLDS; i++) { /* the last counts */
        verdict = time_mapping(gpu, place.at, place.chunk, &times);
    }
    say_times("on an idle device", &times);
    WORKS(gpu_spin(gpu, LONG_NS, stream));
    verdict = verdict == HOLDS ? time_mapping(gpu, place.at, place.chunk, &times) : verdict;
    bool busy = cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
    say_times("while a kernel of the process runs", &times);
    assume_whether("do mapping and unmapping wait for a running kernel?", !busy);
    WORKS(cuStreamSynchronize(stream));
    WORKS(cuStreamDestroy(stream));
    WORKS(close_place(gpu, &place));
    return verdict;
}

/* Another process, this program as `spin`, whose kernel runs from the byte that it writes on. */
static pid_t start_spinner(int *pipe_end)
{
    int ends[2];
    pid_t child = -1;
    posix_spawn_file_actions_t actions;
    char *arguments[] = {"gpu_assumptions", "spin", NULL};
    MUST(pipe(ends));
    MUST(posix_spawn_file_actions_init(&actions));
    MUST(posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO));
    MUST(posix_spawn_file_actions_addclose(&actions, ends[0]));
    if (posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments, environ) != 0) {
        child = -1;
    }
    MUST(posix_spawn_file_actions_destroy(&actions));
    (void)close(ends[1]);
    *pipe_end = ends[0];
    return child;
}

int assume_spin(void)
{
    struct gpu gpu;
    gpu_open(&gpu);
    MUST(gpu_spin(&gpu, 0, NULL)); /* a first launch takes longer */
    MUST(cuCtxSynchronize());
    MUST(gpu_spin(&gpu, LONG_NS, NULL));
    EXPECT(write(STDOUT_FILENO, "", 1) == 1);
    MUST(cuCtxSynchronize());
    return 0;
}

static enum verdict mapping_beside_another_process(const struct gpu *gpu)
{
    struct place place;
    struct times times = {0};
    char byte;
    int pipe_end = -1;
    int status = 0;
    NEEDS(gpu->granule_bytes != 0, "the device cannot map memory");
    WORKS(open_place(gpu, &place));
    pid_t child = start_spinner(&pipe_end);
    NEEDS(child > 0, "no other process could be started");
    bool begun = read(pipe_end, &byte, 1) == 1;
    enum verdict verdict = time_mapping(gpu, place.at, place.chunk, &times);
    (void)close(pipe_end);
    SO(waitpid(child, &status, 0) == child);
    NEEDS(begun && status == 0, "the other process could not use the device");
    say_times("while a kernel of another process runs", &times);
    WORKS(close_place(gpu, &place));
    return verdict;
}

/* --- freeing ---------------------------------------------------------------------------------- */

static int by_size(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one;
    uint64_t b = *(const uint64_t *)other;
    return a < b ? -1 : a > b;
}

static enum verdict freeing(const struct gpu *gpu)
{
    enum { ROUNDS = 15 };
    static const size_t sizes[] = {64 * KIB, 2 * MIB, 64 * MIB};
    (void)gpu;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t took[ROUNDS];
        char question[160];
        for (int round = 0; round < ROUNDS; round++) {
            CUdeviceptr at;
            WORKS(cuMemAlloc(&at, sizes[i]));
            WORKS(cuCtxSynchronize());
            uint64_t start = gpu_now_ns();
            WORKS(cuMemFree(at));
            took[round] = gpu_now_ns() - start;
        }
        qsort(took, ROUNDS, sizeof *took, by_size);
        (void)snprintf(question, sizeof question, "cuMemFree of %zu KiB on an idle device (median)",
                       sizes[i] / KIB);
        measured_us(question, took[ROUNDS / 2]);
    }
    return HOLDS;
}

/* --- destroyed streams ------------------------------------------------------------------------ */

typedef CUresult (*record_context_t)(CUcontext context, CUevent event);

/* cuda.h does not say whether cuCtxRecordEvent captures the work of streams that were destroyed.
 * memshim does not rely on it. */
static enum verdict destroyed_streams(const struct gpu *gpu)
{
    CUcontext context;
    CUstream stream;
    CUstream look;
    CUevent event;
    CUdeviceptr block;
    CUdeviceptr wrong;
    uint64_t count = 0;
    void *found = NULL;
    record_context_t record;
    (void)cuGetProcAddress("cuCtxRecordEvent", &found, 12050, CU_GET_PROC_ADDRESS_DEFAULT, NULL);
    NEEDS(found, "the driver has no cuCtxRecordEvent (CUDA 12.5)");
    memcpy(&record, &found, sizeof record);
    WORKS(cuCtxGetCurrent(&context));
    WORKS(cuMemAlloc(&block, MIB));
    WORKS(cuMemAlloc(&wrong, sizeof count));
    WORKS(cuMemsetD8(block, 0, MIB));
    WORKS(cuMemsetD8(wrong, 0, sizeof count));
    WORKS(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    WORKS(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    WORKS(cuStreamCreate(&look, CU_STREAM_NON_BLOCKING));
    WORKS(cuCtxSynchronize());
    WORKS(gpu_spin(gpu, LONG_NS, stream));
    WORKS(gpu_fill(gpu, block, MIB, 6, stream));
    WORKS(cuStreamDestroy(stream));
    WORKS(record(context, event));
    CUresult at_once = cuEventQuery(event);
    WORKS(cuEventSynchronize(event));
    WORKS(gpu_check(gpu, block, MIB, 6, wrong, look));
    WORKS(cuStreamSynchronize(look));
    WORKS(cuCtxSynchronize());
    WORKS(cuMemcpyDtoH(&count, wrong, sizeof count));
    WORKS(cuStreamDestroy(look));
    WORKS(cuEventDestroy(event));
    WORKS(cuMemFree(block));
    WORKS(cuMemFree(wrong));
    GIVES(at_once, CUDA_ERROR_NOT_READY);
    GIVES(count, 0);
    return HOLDS;
}

const struct assumption assume_waits[] = {
    {"an event of a context covers kernels of streams that were destroyed", destroyed_streams,
     false},
    {"thousands of operations can be queued", long_queues, false},
    {"memory is mapped while a kernel of the process runs", mapping_beside_a_kernel, false},
    {"memory is mapped while another process's kernel runs", mapping_beside_another_process, false},
    {"cuMemFree of memory of an idle device", freeing, false},
    {NULL, NULL, false},
};
