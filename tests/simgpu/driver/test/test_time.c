/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that take time and memory, full queues, and copies between devices. CMakeLists.txt has the
 * settings. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static atomic_bool done;
static CUcontext context_of_thread;

static void *load_module(void *unused)
{
    (void)unused;
    CUmodule module;
    OK(cuCtxSetCurrent(context_of_thread));
    OK(cuModuleLoadData(&module, "\177ELF anything"));
    atomic_store(&done, true);
    return NULL;
}

/* Other threads call the driver meanwhile, and see the memory from before. */
Test(time, a_module_is_loaded_while_others_work)
{
    pthread_t thread;
    context_of_thread = begin();
    uint64_t before = simgpu_used_bytes(0), calls = simgpu_calls("cuModuleLoadData");
    cr_assert_eq(pthread_create(&thread, NULL, load_module, NULL), 0);
    while (simgpu_calls("cuModuleLoadData") == calls) {
        usleep(100);
    }
    OK(cuCtxSynchronize());
    size_t free, total;
    OK(cuMemGetInfo(&free, &total));
    cr_assert(atomic_load(&done) || simgpu_used_bytes(0) == before);
    pthread_join(thread, NULL);
    cr_assert_eq(simgpu_used_bytes(0), before + 4 * MIB);
}

Test(time, a_context_takes_its_time)
{
    OK(cuInit(0));
    uint64_t start = now_us();
    begin();
    cr_assert_geq(now_us() - start, 20000);
}

static void *retain_primary(void *context)
{
    OK(cuDevicePrimaryCtxRetain(context, 0));
    return NULL;
}

Test(time, two_threads_that_retain_at_once_get_one_context)
{
    pthread_t thread;
    CUcontext here, there;
    OK(cuInit(0));
    cr_assert_eq(pthread_create(&thread, NULL, retain_primary, &there), 0);
    OK(cuDevicePrimaryCtxRetain(&here, 0));
    pthread_join(thread, NULL);
    cr_assert_eq(here, there);
    cr_assert_eq(simgpu_used_bytes(0), 64 * MIB);
    cr_assert_eq(simgpu_live("context"), 1);
}

Test(time, the_first_launch_of_a_function_takes_time_and_memory)
{
    begin();
    CUfunction function = kernel_named("nothing");
    uint64_t before = simgpu_used_bytes(0), start = now_us();
    uint64_t parameters[2] = {0};
    void *pointers[] = {&parameters[0], &parameters[1]};
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, pointers, NULL));
    cr_assert_geq(now_us() - start, 20000);
    cr_assert_eq(simgpu_used_bytes(0), before + 2 * MIB);
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, pointers, NULL));
    cr_assert_eq(simgpu_used_bytes(0), before + 2 * MIB);
    CUmodule module;
    OK(cuFuncGetModule(&module, function));
    OK(cuModuleUnload(module));
    cr_assert_eq(simgpu_used_bytes(0), before - 4 * MIB);
}

struct flood {
    CUstream stream;
    CUevent event;
    CUdeviceptr block;
    _Atomic int queued;
};

static void *queue_six(void *argument)
{
    struct flood *flood = argument;
    OK(cuCtxSetCurrent(context_of_thread));
    for (int i = 0; i < 6; i++) {
        if (i % 2) {
            OK(cuEventRecord(flood->event, flood->stream));
        } else {
            OK(cuMemsetD8Async(flood->block, (unsigned char)i, 16, flood->stream));
        }
        atomic_fetch_add(&flood->queued, 1);
    }
    return NULL;
}

/* The gate's wait is one of the four operations that fit. So three more fit, and the fourth
 * waits. */
Test(time, a_full_queue_blocks_the_caller_and_nobody_else)
{
    pthread_t thread;
    struct flood flood = {0};
    CUstream other;
    context_of_thread = begin();
    OK(cuMemAlloc(&flood.block, 16));
    OK(cuStreamCreate(&flood.stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&flood.event, 0));
    volatile uint32_t *gate = shut_gate(flood.stream);
    uint64_t records = simgpu_calls("cuEventRecord");
    cr_assert_eq(pthread_create(&thread, NULL, queue_six, &flood), 0);
    while (atomic_load(&flood.queued) < 3 || simgpu_calls("cuEventRecord") < records + 2) {
        usleep(100);
    }
    OK(cuMemsetD8Async(flood.block, 1, 16, other));
    OK(cuStreamSynchronize(other));
    cr_assert_eq(atomic_load(&flood.queued), 3);
    open_gate(gate);
    pthread_join(thread, NULL);
    OK(cuStreamSynchronize(flood.stream));
    OK(cuEventQuery(flood.event));
}

/* Two copies in streams of their own, both between devices 0 and 1, run one after the other. */
Test(time, copies_between_two_devices_have_both_for_themselves)
{
    CUcontext first = begin(), second;
    CUdeviceptr from, to;
    CUstream here, there;
    OK(cuMemAlloc(&from, MIB));
    OK(cuMemsetD8(from, 7, MIB));
    OK(cuStreamCreate(&here, CU_STREAM_NON_BLOCKING));
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxSetCurrent(second));
    OK(cuMemAlloc(&to, 2 * MIB));
    OK(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
    OK(cuCtxSetCurrent(first));
    OK(cuCtxSynchronize());
    uint64_t start = now_us();
    OK(cuMemcpyPeerAsync(to, second, from, first, MIB, here));
    OK(cuCtxSetCurrent(second));
    OK(cuMemcpyPeerAsync(to + MIB, second, from, first, MIB, there));
    OK(cuStreamSynchronize(there));
    OK(cuStreamSynchronize(here));
    cr_assert_geq(now_us() - start, 40000);
    cr_assert_eq(mismatches(NULL, to, 2 * MIB, 7), 0);
}
