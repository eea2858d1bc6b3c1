/* What the suites of the driver's double share. */
#ifndef SIMGPU_DRIVER_TEST_CHECK_H
#define SIMGPU_DRIVER_TEST_CHECK_H

#include <criterion/criterion.h>
#include <cuda.h>
#include <stdint.h>
#include <string.h>

#include "simgpu.h"

#define MIB (1ull << 20)

static inline const char *error_name(CUresult error)
{
    const char *name = NULL;
    cuGetErrorName(error, &name);
    return name ? name : "an unknown error";
}

#define REFUSED(call, wanted)                                                      \
    do {                                                                           \
        CUresult got_ = (call);                                                    \
        cr_assert_eq(got_, wanted, "%s gives %s, not %s", #call, error_name(got_), \
                     error_name(wanted));                                          \
    } while (0)

#define OK(call) REFUSED(call, CUDA_SUCCESS)

/* Initialises, and makes the primary context of device 0 current. */
static inline CUcontext begin(void)
{
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    return context;
}

static inline CUfunction kernel_named(const char *name)
{
    CUmodule module;
    CUfunction function;
    OK(cuModuleLoadData(&module, "simgpu-module\nkernel nothing 0:8 8:4\nglobal table 4096\n"));
    OK(cuModuleGetFunction(&function, module, name));
    return function;
}

static inline void fill(CUstream stream, CUdeviceptr at, uint64_t bytes, uint32_t byte)
{
    void *parameters[] = {&at, &bytes, &byte};
    OK(cuLaunchKernel(kernel_named("simgpu_fill"), 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

/* How many of the bytes differ, as a kernel of the stream sees it; waits for the stream. */
static inline uint64_t mismatches(CUstream stream, CUdeviceptr at, uint64_t bytes, uint32_t byte)
{
    /* Kept: to free page-locked memory is to wait for the device, which may stand at a gate. */
    static _Thread_local uint64_t *count;
    if (!count) {
        OK(cuMemAllocHost((void **)&count, sizeof *count));
    }
    *count = 0;
    CUdeviceptr result = (CUdeviceptr)count;
    void *parameters[] = {&at, &bytes, &byte, &result};
    OK(cuLaunchKernel(kernel_named("simgpu_check"), 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    OK(cuStreamSynchronize(stream));
    return *count;
}

/* A gate: the stream stands still behind it until it is opened. */
static inline volatile uint32_t *shut_gate(CUstream stream)
{
    uint32_t *gate;
    OK(cuMemAllocHost((void **)&gate, sizeof *gate));
    *gate = 0;
    OK(cuStreamWaitValue32(stream, (CUdeviceptr)gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    return gate;
}

static inline void open_gate(volatile uint32_t *gate)
{
    *gate = 1;
}

static inline size_t free_bytes(void)
{
    size_t free, total;
    OK(cuMemGetInfo(&free, &total));
    return free;
}

#endif
