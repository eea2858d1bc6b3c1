/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that launch, copy and set at random while another brings the device to a standstill,
 * again and again. During each nothing may start and nothing may be stored; in the end every thread
 * finds what its work, in its order, must have left.
 *
 * Arguments: seed, standstills, threads. Uses all devices, which reach each other. Ends with a line
 * of JSON. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include <cuda.h>

#include "gate_entry.h"
#include "say.h"
#include "simgpu.h"

enum {
    THREADS_MOST = 32,
    DEVICES_MOST = 4,
    ROW_BYTES = 64,
    ROWS = 64,  /* of a thread, on its stream; as many more by calls that wait */
    QUEUE = 12, /* calls at most before a thread waits for its stream */
    COPIES_EVERY = 4,
};
#define AREA_BYTES ((size_t)2 * ROWS * ROW_BYTES)
#define LIMIT_NS   (20ull * 1000000000)
#define LONGEST_US 300

static unsigned char patterns[256][ROW_BYTES]; /* the row of each byte */
static CUcontext contexts[DEVICES_MOST];
static CUfunction fills[DEVICES_MOST];
static int devices;
static atomic_bool over;
static atomic_ullong activity; /* stores on devices, and host functions */
static pthread_barrier_t start;

static const char *const starters[] = {"cuLaunchKernel",    "cuLaunchKernelEx",  "cuGraphLaunch",
                                       "cuLaunchHostFunc",  "cuMemsetD8Async",   "cuMemsetD8",
                                       "cuMemcpyHtoDAsync", "cuMemcpyDtoDAsync", "cuMemcpyDtoH",
                                       "cuMemcpyAsync"};

struct worker {
    pthread_t thread;
    int device;
    uint64_t seed, calls;
    CUdeviceptr at;
    unsigned char expected[2 * ROWS];
    CUstream stream;
    CUgraphExec graph; /* sets row 0 to 7 */
};

static uint64_t draw(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed * 0x2545f4914f6cdd1du >> 16;
}

static void nap_us(uint64_t us)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
}

static void stored(uint64_t at, uint64_t bytes)
{
    (void)at;
    (void)bytes;
    atomic_fetch_add(&activity, 1);
}

static void CUDA_CB host_function(void *unused)
{
    (void)unused;
    atomic_fetch_add(&activity, 1);
}

static CUdeviceptr row(const struct worker *w, unsigned i)
{
    return w->at + (CUdeviceptr)i * ROW_BYTES;
}

static void fill(struct worker *w, unsigned i, uint32_t byte, bool ex)
{
    CUdeviceptr at = row(w, i);
    uint64_t bytes = ROW_BYTES;
    void *parameters[] = {&at, &bytes, &byte};
    if (ex) {
        CUlaunchConfig config = {.gridDimX = 1,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = 1,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .hStream = w->stream};
        MUST(cuLaunchKernelEx(&config, fills[w->device], parameters, NULL));
    } else {
        MUST(cuLaunchKernel(fills[w->device], 1, 1, 1, 1, 1, 1, 0, w->stream, parameters, NULL));
    }
    w->expected[i] = (unsigned char)byte;
}

static void one_call(struct worker *w)
{
    unsigned i = (unsigned)(draw(&w->seed) % ROWS);
    unsigned j = ROWS + i;
    unsigned char byte = (unsigned char)draw(&w->seed);
    unsigned char back[ROW_BYTES];
    switch (draw(&w->seed) % 9) {
    case 0:
        fill(w, i, byte, false);
        break;
    case 1:
        fill(w, i, byte, true);
        break;
    case 2:
        MUST(cuMemsetD8Async(row(w, i), byte, ROW_BYTES, w->stream));
        w->expected[i] = byte;
        break;
    case 3:
        MUST(cuMemcpyHtoDAsync(row(w, i), patterns[byte], ROW_BYTES, w->stream));
        w->expected[i] = byte;
        break;
    case 4:
        MUST(cuMemcpyDtoDAsync(row(w, i), row(w, byte % ROWS), ROW_BYTES, w->stream));
        w->expected[i] = w->expected[byte % ROWS];
        break;
    case 5:
        MUST(cuGraphLaunch(w->graph, w->stream));
        w->expected[0] = 7;
        break;
    case 6:
        MUST(cuLaunchHostFunc(w->stream, host_function, NULL));
        break;
    case 7:
        MUST(cuMemsetD8(row(w, j), byte, ROW_BYTES));
        w->expected[j] = byte;
        break;
    default:
        MUST(cuMemcpyDtoH(back, row(w, j), ROW_BYTES));
        EXPECT(memcmp(back, patterns[w->expected[j]], ROW_BYTES) == 0);
    }
    w->calls++;
}

static void prepare(struct worker *w)
{
    MUST(cuCtxSetCurrent(contexts[w->device]));
    MUST(cuStreamCreate(&w->stream, CU_STREAM_NON_BLOCKING));
    CUgraph graph;
    MUST(cuStreamBeginCapture(w->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemsetD8Async(row(w, 0), 7, ROW_BYTES, w->stream));
    MUST(cuStreamEndCapture(w->stream, &graph));
    MUST(cuGraphInstantiate(&w->graph, graph, 0));
    MUST(cuGraphDestroy(graph));
}

static void *work(void *argument)
{
    struct worker *w = argument;
    prepare(w);
    pthread_barrier_wait(&start);
    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        for (uint64_t left = draw(&w->seed) % QUEUE; left > 0; left--) {
            one_call(w);
        }
        MUST(cuStreamSynchronize(w->stream));
    }
    static unsigned char zero[ROW_BYTES];
    unsigned char(*all)[ROW_BYTES] = malloc(AREA_BYTES);
    MUST(cuMemcpyDtoH(all, w->at, AREA_BYTES));
    for (unsigned i = 0; i < 2 * ROWS; i++) {
        EXPECT(memcmp(all[i], w->expected[i] ? patterns[w->expected[i]] : zero, ROW_BYTES) == 0);
    }
    free(all);
    return NULL;
}

static uint64_t started(void)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof starters / sizeof *starters; i++) {
        uint64_t calls = simgpu_calls(starters[i]);
        EXPECT(calls != UINT64_MAX);
        sum += calls;
    }
    return sum;
}

/* A worker's memory away and back, by way of the shim's own copies, in pieces. */
static void move(const struct worker *w, CUdeviceptr scratch)
{
    enum { PIECES = 8 };
    const size_t piece = AREA_BYTES / PIECES;
    for (size_t p = 0; p < PIECES; p++) {
        MUST(gate_copy(0, scratch + p * piece, w->at + p * piece, piece));
    }
    for (size_t p = 0; p < PIECES; p++) {
        MUST(gate_copy_wait(0, PIECES - 1)); /* one on its way away is there, and goes back */
        MUST(gate_copy(0, w->at + p * piece, scratch + p * piece, piece));
    }
    MUST(gate_copy_wait(0, 0));
}

static void stand_still(const struct worker *w, CUdeviceptr scratch, bool copies, uint64_t *seed)
{
    MUST(gate_halt(0, LIMIT_NS));
    uint64_t before = atomic_load(&activity), calls = started();
    nap_us(draw(seed) % LONGEST_US);
    EXPECT(atomic_load(&activity) == before);
    EXPECT(started() == calls);
    if (copies) {
        move(w, scratch);
        EXPECT(atomic_load(&activity) > before);
    }
    gate_resume(0);
}

static void open_devices(void)
{
    MUST(cuInit(0));
    MUST(cuDeviceGetCount(&devices));
    EXPECT(devices <= DEVICES_MOST);
    for (int d = 0; d < devices; d++) {
        CUmodule module;
        MUST(cuDevicePrimaryCtxRetain(&contexts[d], d));
        MUST(cuCtxSetCurrent(contexts[d]));
        MUST(cuModuleLoadData(&module, "any"));
        MUST(cuModuleGetFunction(&fills[d], module, "simgpu_fill"));
        for (int other = 0; other < d; other++) {
            MUST(cuCtxEnablePeerAccess(contexts[other], 0));
            MUST(cuCtxSetCurrent(contexts[other]));
            MUST(cuCtxEnablePeerAccess(contexts[d], 0));
            MUST(cuCtxSetCurrent(contexts[d]));
        }
    }
    MUST(cuCtxSetCurrent(contexts[0]));
}

int main(int argc, char **argv)
{
    EXPECT(argc == 4);
    uint64_t seed = strtoull(argv[1], NULL, 10) * 2 + 1, calls = 0;
    const unsigned halts = (unsigned)strtoul(argv[2], NULL, 10);
    const unsigned threads = (unsigned)strtoul(argv[3], NULL, 10);
    EXPECT(threads > 0 && threads <= THREADS_MOST);
    for (int byte = 0; byte < 256; byte++) {
        memset(patterns[byte], byte, ROW_BYTES);
    }
    open_devices();
    /* All memory is device 0's, work on it anybody's. */
    static struct worker workers[THREADS_MOST];
    CUdeviceptr scratch;
    MUST(cuMemAlloc(&scratch, AREA_BYTES));
    pthread_barrier_init(&start, NULL, threads + 1);
    for (unsigned t = 0; t < threads; t++) {
        workers[t].device = (int)t % devices;
        workers[t].seed = draw(&seed) | 1;
        MUST(cuMemAlloc(&workers[t].at, AREA_BYTES));
        MUST(cuMemsetD8(workers[t].at, 0, AREA_BYTES));
    }
    MUST(cuCtxSynchronize());
    simgpu_watch_writes(stored);
    for (unsigned t = 0; t < threads; t++) {
        pthread_create(&workers[t].thread, NULL, work, &workers[t]);
    }
    pthread_barrier_wait(&start);
    for (unsigned h = 0; h < halts; h++) {
        nap_us(draw(&seed) % LONGEST_US);
        stand_still(&workers[h % threads], scratch, h % COPIES_EVERY == 0, &seed);
    }
    atomic_store(&over, true);
    for (unsigned t = 0; t < threads; t++) {
        pthread_join(workers[t].thread, NULL);
        calls += workers[t].calls;
    }
    (void)printf("{\"standstills\": %u, \"calls\": %" PRIu64 ", \"activity\": %llu}\n", halts,
                 calls, atomic_load(&activity));
    return 0;
}
