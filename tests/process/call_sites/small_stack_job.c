/* SPDX-License-Identifier: Apache-2.0 */
/* A program whose threads have little stack, and a page below it that nothing may touch. On one
 * thread each: the first use of the device, the first launch, an allocation from a place that none
 * came from before, as many as there is memory for, and the end of the process. How much of its
 * stack each thread used is said on standard error. small_stack_job KIB */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"
#include "say.h"

#define PAINT 0xa5

static struct driver cu;
static CUcontext context;

static void allocate(size_t bytes)
{
    CUdeviceptr block;
    MUST(cu.cuMemAlloc(&block, bytes));
    MUST(cu.cuMemFree(block));
}

static void use_first(void)
{
    CUdevice device;
    cu = driver_open();
    MUST(cu.cuInit(0));
    MUST(cu.cuDeviceGet(&device, 0));
    MUST(cu.cuDevicePrimaryCtxRetain(&context, device));
    MUST(cu.cuCtxSetCurrent(context));
    allocate(64 * KIB);
}

static void launch_first(void)
{
    CUmodule module;
    CUfunction function;
    MUST(cu.cuCtxSetCurrent(context));
    MUST(cu.cuModuleLoadData(&module, "an image"));
    MUST(cu.cuModuleGetFunction(&function, module, "kernel"));
    MUST(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    MUST(cu.cuCtxSynchronize());
}

static void allocate_elsewhere(void)
{
    MUST(cu.cuCtxSetCurrent(context));
    allocate(2 * MIB);
}

static void run_out(void)
{
    enum { MOST = 64 };
    CUdeviceptr blocks[MOST];
    size_t count = 0;
    MUST(cu.cuCtxSetCurrent(context));
    while (count < MOST && cu.cuMemAlloc(&blocks[count], 64 * MIB) == CUDA_SUCCESS) {
        count++;
    }
    EXPECT(count > 0 && count < MOST);
    while (count > 0) {
        MUST(cu.cuMemFree(blocks[--count]));
    }
}

static void leave(void)
{
    (void)printf("survived\n");
    exit(3);
}

struct part {
    const char *name;
    void (*run)(void);
};
static const struct part parts[] = {{"first use", use_first},
                                    {"first launch", launch_first},
                                    {"another place", allocate_elsewhere},
                                    {"out of memory", run_out},
                                    {"end", leave}};

static void *run_part(void *part)
{
    ((const struct part *)part)->run();
    return NULL;
}

static void run_on_stack(const struct part *part, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    pthread_attr_t attributes;
    pthread_t thread;
    size_t untouched = 0;
    char *low =
        mmap(NULL, page + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(low != MAP_FAILED);
    MUST(mprotect(low, page, PROT_NONE));
    unsigned char *stack = (unsigned char *)low + page;
    memset(stack, PAINT, bytes);
    MUST(pthread_attr_init(&attributes));
    MUST(pthread_attr_setstack(&attributes, stack, bytes));
    MUST(pthread_create(&thread, &attributes, run_part, (void *)part));
    MUST(pthread_join(thread, NULL));
    while (untouched < bytes && stack[untouched] == PAINT) {
        untouched++;
    }
    (void)fprintf(stderr, "%s: %zu bytes of stack\n", part->name, bytes - untouched);
    MUST(munmap(low, page + bytes));
}

int main(int count, char **arguments)
{
    const size_t wanted = count > 1 ? strtoul(arguments[1], NULL, 10) * KIB : 0;
    const size_t least = (size_t)sysconf(_SC_THREAD_STACK_MIN);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        run_on_stack(&parts[i], wanted > least ? wanted : least);
    }
    return 0;
}
