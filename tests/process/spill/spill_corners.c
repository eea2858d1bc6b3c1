/* SPDX-License-Identifier: Apache-2.0 */
/* What memory on the host must not take from a program, one case a run: its peers' access, the
 * addresses in its graphs, its children and its end. Fills device 0 with known blocks, more than
 * there is room for.
 *
 * Arguments: the case, or "list" for the names of all. Ends with "done", or with the status that
 * the case asks for. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cuda.h>

#include "cases.h"
#include "gate_entry.h"
#include "say.h"

enum { BLOCKS = 40, SOME = 26, COLD = 2, CHILDREN = 12, ROUND_BLOCKS = 12, END_STATUS = 7 };
#define BLOCK_BYTES ((size_t)4 << 20)
#define WORDS       (BLOCK_BYTES / sizeof(uint32_t))

static CUcontext context;
static CUdeviceptr block[BLOCKS];
static uint32_t host[WORDS];
static atomic_uint rounds;

static uint32_t content(int i)
{
    return 0x01010101u * (uint32_t)(i + 1);
}

static void make(int i)
{
    MUST(cuMemAlloc(&block[i], BLOCK_BYTES));
    MUST(cuMemsetD32(block[i], content(i), WORDS));
}

static void check(CUdeviceptr at, uint32_t word)
{
    memset(host, 0, sizeof host);
    MUST(cuMemcpyDtoH(host, at, BLOCK_BYTES));
    for (size_t w = 0; w < WORDS; w++) {
        EXPECT(host[w] == word);
    }
}

/* The first few are cold, and on the host in the end. */
static void begin(void)
{
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    for (int i = 0; i < COLD; i++) {
        make(i);
    }
}

static void fill(void)
{
    for (int i = COLD; i < BLOCKS; i++) {
        make(i);
    }
    for (int i = 0; i < COLD; i++) {
        EXPECT(gate_host_bytes(0, block[i]) == BLOCK_BYTES);
    }
}

/* ---- ahead of need (MEMSHIM_THRESHOLDS=0.4,0.5,0.6, of 136 MiB) */

/* There is room for all of it: some goes nevertheless as the last threshold is crossed. */
static void ahead(void)
{
    uint64_t on_host = 0;
    for (int i = COLD; i < SOME; i++) {
        make(i);
    }
    for (int i = 0; i < SOME; i++) {
        on_host += gate_host_bytes(0, block[i]);
    }
    EXPECT(on_host >= BLOCK_BYTES);
    for (int i = 0; i < SOME; i++) {
        check(block[i], content(i));
    }
}

/* ---- peers */

static void peers(void)
{
    CUcontext other;
    CUdeviceptr there;
    MUST(cuDevicePrimaryCtxRetain(&other, 1));
    MUST(cuCtxSetCurrent(other));
    MUST(cuCtxEnablePeerAccess(context, 0));
    MUST(cuMemAlloc(&there, BLOCK_BYTES));
    MUST(cuMemcpyDtoD(there, block[0], BLOCK_BYTES));
    MUST(cuCtxSetCurrent(context));
    fill();
    MUST(cuCtxSetCurrent(other));
    for (int i = 0; i < COLD; i++) {
        MUST(cuMemcpyDtoD(there, block[i], BLOCK_BYTES));
        check(there, content(i));
        MUST(cuMemsetD32(block[i], content(BLOCKS + i), WORDS));
        check(block[i], content(BLOCKS + i));
    }
    MUST(cuCtxSetCurrent(context));
    for (int i = 0; i < COLD; i++) {
        check(block[i], content(BLOCKS + i));
    }
}

/* ---- graphs */

/* It was captured while all of it lay on the device. */
static void graphs(void)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuCtxSynchronize());
    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemcpyDtoDAsync(block[1], block[0], BLOCK_BYTES / 2, stream));
    MUST(cuMemsetD32Async(block[0], content(BLOCKS), WORDS, stream));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiate(&exec, graph, 0));
    fill();
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    check(block[0], content(BLOCKS));
    MUST(cuMemcpyDtoH(host, block[1], BLOCK_BYTES));
    for (size_t w = 0; w < WORDS; w++) {
        EXPECT(host[w] == content(w < WORDS / 2 ? 0 : 1));
    }
}

/* ---- while memory moves */

/* More comes and goes than there is room for: with each round something moves. */
static void *keep_moving(void *unused)
{
    CUdeviceptr more[ROUND_BLOCKS];
    MUST(cuCtxSetCurrent(context));
    for (;;) {
        for (int i = 0; i < ROUND_BLOCKS; i++) {
            MUST(cuMemAlloc(&more[i], BLOCK_BYTES));
            MUST(cuMemsetD32(more[i], content(i), WORDS));
        }
        for (int i = 0; i < ROUND_BLOCKS; i++) {
            MUST(cuMemFree(more[i]));
        }
        atomic_fetch_add(&rounds, 1);
    }
    return unused;
}

static void nap(long us)
{
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static void begin_to_move(void)
{
    pthread_t thread;
    fill();
    MUST(pthread_create(&thread, NULL, keep_moving, NULL));
    MUST(pthread_detach(thread));
    while (atomic_load(&rounds) < 2) {
        nap(1000);
    }
}

/* Children use the driver, in vain, and end; none of it concerns the parent. */
static void children(void)
{
    begin_to_move();
    for (int i = 0; i < CHILDREN; i++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            CUdeviceptr at;
            (void)cuMemsetD8(block[0], 0, BLOCK_BYTES);
            (void)cuMemAlloc(&at, BLOCK_BYTES);
            (void)cuMemFree(block[1]);
            if (i % 2 == 0) {
                exit(END_STATUS);
            }
            _exit(END_STATUS);
        }
        EXPECT(child > 0 && waitpid(child, &status, 0) == child);
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == END_STATUS);
        nap(700L * i);
    }
    unsigned then = atomic_load(&rounds);
    while (atomic_load(&rounds) < then + 2) {
        nap(1000);
    }
    for (int i = 0; i < BLOCKS; i++) {
        check(block[i], content(i));
    }
    exit(END_STATUS); /* the other thread goes on */
}

static void the_end(void)
{
    begin_to_move();
    nap((long)(getpid() % 50) * 300);
    exit(END_STATUS);
}

/* ---- cancelled threads */

/* Its end is asked for before it begins. What is queued before each allocation is not done yet. */
static void *move_and_be_cancelled(void *unused)
{
    CUdeviceptr more;
    MUST(cuCtxSetCurrent(context));
    MUST(pthread_cancel(pthread_self()));
    for (int i = 0; i < ROUND_BLOCKS; i++) {
        MUST(cuMemsetD32Async(block[BLOCKS - 1], content(BLOCKS - 1), WORDS, NULL));
        MUST(cuMemAlloc(&more, BLOCK_BYTES));
    }
    atomic_fetch_add(&rounds, 1);
    pthread_testcancel();
    return unused;
}

static void cancelled(void)
{
    pthread_t thread;
    void *end = NULL;
    fill();
    MUST(pthread_create(&thread, NULL, move_and_be_cancelled, NULL));
    MUST(pthread_join(thread, &end));
    EXPECT(end == PTHREAD_CANCELED && atomic_load(&rounds) == 1);
    for (int i = 0; i < BLOCKS; i++) {
        check(block[i], content(i));
    }
}

/* ---- main */

#define CASES(X) X(ahead) X(peers) X(graphs) X(children) X(the_end) X(cancelled)

static const struct test_case cases[] = {
#define CASE(name) {#name, name},
    CASES(CASE)};

int main(int argc, char **argv)
{
    return run_case(argc, argv, cases, sizeof cases / sizeof *cases, begin);
}
