/* SPDX-License-Identifier: Apache-2.0 */
/* Device 0 for the programs of the check: its context, its memory through the driver's own calls,
 * and the kernels of kernels.h. They link libcuda.so.1, so they run on a real GPU as on the
 * simulated one. A call that must work and does not ends the program with status 1. */
#ifndef MEMSHIM_TESTS_GPU_GPU_H
#define MEMSHIM_TESTS_GPU_GPU_H

#include <cuda.h>
#include <stdint.h>

#include "tests/process/programs/say.h"

struct gpu {
    CUdevice device;
    CUcontext context; /* the primary one, current on the thread that opened it */
    CUfunction fill, check, spin;
    size_t granule_bytes; /* 0: the device cannot map memory */
};

/* On the calling thread. Other threads make gpu->context current themselves. */
void gpu_open(struct gpu *gpu);

/* Whether the loaded driver is the simulated one. */
int gpu_is_simulated(void);

/* From now on the driver is one without this function: it is found no more, by the loader or by
 * whoever reads the table of symbols. Before anybody has looked for it. */
void gpu_leave_out(const char *function);

/* Queued on the stream: store `byte`, count what differs from it, keep the stream busy. */
CUresult gpu_fill(const struct gpu *gpu, CUdeviceptr at, size_t bytes, unsigned byte,
                  CUstream stream);
CUresult gpu_check(const struct gpu *gpu, CUdeviceptr at, size_t bytes, unsigned byte,
                   CUdeviceptr mismatches, CUstream stream);
CUresult gpu_spin(const struct gpu *gpu, uint64_t nanoseconds, CUstream stream);

/* Bytes of [at, at + bytes) that a kernel finds to differ; waits for the device. */
uint64_t gpu_mismatches(const struct gpu *gpu, CUdeviceptr at, size_t bytes, unsigned byte);

/* What cuMemCreate wants for memory of the device, and of the host as near to it as can be had;
 * `host` leaves `at` untouched and is nonzero where the device cannot map host memory. */
CUmemAllocationProp gpu_device_memory(const struct gpu *gpu);
int gpu_host_memory(const struct gpu *gpu, CUmemAllocationProp *at);

/* Read and write access of the device. */
CUresult gpu_allow(const struct gpu *gpu, CUdeviceptr at, size_t bytes);

/* Of the device, as the driver counts it. */
size_t gpu_free_bytes(void);

uint64_t gpu_now_ns(void);

#endif
