/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.h with every ABI of every function declared under its exported name, with default
 * visibility, so that the functions of the table can be exported. */
#ifndef SIMGPU_DRIVER_API_H
#define SIMGPU_DRIVER_API_H

#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>
/* cudaProfiler.h is not part of every package of headers. */
CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);
#pragma GCC visibility pop

/* Declarations that headers before the named version lack. */
#if CUDA_VERSION < 12080
#    define CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE 21
#    define CU_MEM_CREATE_USAGE_HW_DECOMPRESS             0x2
#endif

#endif
