/* SPDX-License-Identifier: Apache-2.0 */
/* Runs out of memory for a reason that is known. Sizes are in MiB.
 *
 *   verdict_job ask SIZE...   allocates each; ends with status 1 at the first that is refused
 *   verdict_job search        a request is refused, served after a free, and a larger one refused
 *   verdict_job hold SIZE     allocates, says so, and waits to be killed
 *   verdict_job holes         a framework's segment with holes in it that nobody may take
 *   verdict_job captured      the same, of which a part was born while a stream was capturing
 *   verdict_job grow          every step keeps 2 MiB more, until one is refused
 *   verdict_job pin SIZE...   the same of page-locked host memory
 *   verdict_job ledger        memory of every kind; says what the device counts as its own
 */
#define MEMSHIM_WEAK
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"
#include "say.h"
#include "shim/memshim.h"

static struct driver cu;

/* Status 1, as a program ends that does not expect to run out. */
static CUdeviceptr ask(size_t bytes)
{
    CUdeviceptr block;
    CUresult result = cu.cuMemAlloc(&block, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        exit(1);
    }
    EXPECT(result == CUDA_SUCCESS);
    return block;
}

static __attribute__((noinline)) void pin(size_t bytes)
{
    void *host;
    CUresult result = cu.cuMemAllocHost(&host, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        exit(1);
    }
    EXPECT(result == CUDA_SUCCESS);
}

static void search(void)
{
    CUdeviceptr refused;
    CUdeviceptr first = ask(500 * MIB);
    EXPECT(cu.cuMemAlloc(&refused, 600 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
    MUST(cu.cuMemFree(first));
    (void)ask(600 * MIB);
    (void)ask(601 * MIB);
}

static void hold(size_t bytes)
{
    (void)ask(bytes);
    (void)puts("ready");
    (void)fflush(stdout);
    (void)pause();
}

static void be_born(CUdeviceptr at, size_t bytes)
{
    if (memshim_range_born) {
        memshim_range_born(0, (const void *)at, bytes);
    }
}

static void holes(void)
{
    be_born(ask(600 * MIB), 100 * MIB);
    (void)ask(400 * MIB);
}

/* A graph may replay into all of the segment, whatever the framework has dropped of it since. */
static void captured(void)
{
    CUdeviceptr segment = ask(600 * MIB);
    CUstream stream;
    CUgraph graph;
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    be_born(segment, 100 * MIB);
    MUST(cu.cuStreamEndCapture(stream, &graph));
    (void)ask(400 * MIB);
}

static __attribute__((noinline)) void keep_one_more(void)
{
    (void)ask(2 * MIB);
}

static void grow(void)
{
    for (;;) {
        if (memshim_step) {
            memshim_step();
        }
        MUST(cu.cuMemFree(ask(64 * MIB)));
        keep_one_more();
    }
}

static uint64_t used_here(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *address = library != NULL ? dlsym(library, "simgpu_used_bytes") : NULL;
    uint64_t (*used_bytes)(int device);
    EXPECT(address != NULL);
    memcpy(&used_bytes, &address, sizeof used_bytes);
    return used_bytes(0);
}

static __attribute__((noinline)) void ledger(void)
{
    const CUDA_ARRAY_DESCRIPTOR shape = {1024, 4096, CU_AD_FORMAT_FLOAT, 1};
    CUdeviceptr managed;
    CUarray array;
    void *host;
    MUST(cu.cuArrayCreate(&array, &shape));
    MUST(cu.cuMemAllocManaged(&managed, 8 * MIB, CU_MEM_ATTACH_GLOBAL));
    MUST(cu.cuMemAllocHost(&host, 24 * MIB));
    (void)ask(200 * MIB);
    MUST(cu.cuMemFree(ask(50 * MIB)));
    (void)ask(100 * MIB);
    (void)printf("{\"used_bytes\": %llu}\n", (unsigned long long)used_here());
    (void)fflush(stdout);
    (void)ask(4 * GIB);
}

int main(int argc, char **argv)
{
    CUcontext context;
    EXPECT(argc >= 2);
    cu = driver_use(&context);
    if (strcmp(argv[1], "search") == 0) {
        search();
    } else if (strcmp(argv[1], "hold") == 0 && argc == 3) {
        hold(strtoull(argv[2], NULL, 10) * MIB);
    } else if (strcmp(argv[1], "holes") == 0) {
        holes();
    } else if (strcmp(argv[1], "captured") == 0) {
        captured();
    } else if (strcmp(argv[1], "grow") == 0) {
        grow();
    } else if (strcmp(argv[1], "ledger") == 0) {
        ledger();
    }
    for (int i = 2; i < argc && strcmp(argv[1], "pin") == 0; i++) {
        pin(strtoull(argv[i], NULL, 10) * MIB);
    }
    for (int i = 2; i < argc && strcmp(argv[1], "ask") == 0; i++) {
        (void)ask(strtoull(argv[i], NULL, 10) * MIB);
    }
    return 0;
}
