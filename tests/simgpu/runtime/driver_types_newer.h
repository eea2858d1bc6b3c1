/* SPDX-License-Identifier: Apache-2.0 */
/* Types of driver functions that appeared after CUDA 12.4, for headers that lack them.
 *
 * The signatures are those of cudaTypedefs.h in the version at the end of a name. Structures that
 * an older cuda.h does not declare are passed on unread, so they are `void` here. */
#ifndef SIMGPU_RUNTIME_DRIVER_TYPES_NEWER_H
#define SIMGPU_RUNTIME_DRIVER_TYPES_NEWER_H

#include <cuda.h>

#if CUDA_VERSION < 12080
typedef CUresult (*PFN_cuEventElapsedTime_v12080)(float *, CUevent, CUevent);
typedef CUresult (*PFN_cuStreamGetDevice_v12080)(CUstream, CUdevice *);
typedef CUresult (*PFN_cuMemcpyBatchAsync_v12080)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t,
                                                  void *, size_t *, size_t, size_t *, CUstream);
typedef CUresult (*PFN_cuMemcpy3DBatchAsync_v12080)(size_t, void *, size_t *, unsigned long long,
                                                    CUstream);
#endif

#if CUDA_VERSION < 13000
typedef CUresult (*PFN_cuMemcpyBatchAsync_v13000)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t,
                                                  void *, size_t *, size_t, CUstream);
typedef CUresult (*PFN_cuMemcpy3DBatchAsync_v13000)(size_t, void *, unsigned long long, CUstream);
typedef CUresult (*PFN_cuMemPrefetchBatchAsync_v13000)(CUdeviceptr *, size_t *, size_t,
                                                       CUmemLocation *, size_t *, size_t,
                                                       unsigned long long, CUstream);
typedef CUresult (*PFN_cuMemDiscardBatchAsync_v13000)(CUdeviceptr *, size_t *, size_t,
                                                      unsigned long long, CUstream);
typedef CUresult (*PFN_cuMemDiscardAndPrefetchBatchAsync_v13000)(CUdeviceptr *, size_t *, size_t,
                                                                 CUmemLocation *, size_t *, size_t,
                                                                 unsigned long long, CUstream);
typedef CUresult (*PFN_cuMemGetDefaultMemPool_v13000)(CUmemoryPool *, CUmemLocation *,
                                                      CUmemAllocationType);
typedef CUresult (*PFN_cuMemGetMemPool_v13000)(CUmemoryPool *, CUmemLocation *,
                                               CUmemAllocationType);
typedef CUresult (*PFN_cuMemSetMemPool_v13000)(CUmemLocation *, CUmemAllocationType, CUmemoryPool);
#endif

#if CUDA_VERSION < 13020
typedef CUresult (*PFN_cuMemcpyWithAttributesAsync_v13020)(CUdeviceptr, CUdeviceptr, size_t, void *,
                                                           CUstream);
typedef CUresult (*PFN_cuMemcpy3DWithAttributesAsync_v13020)(void *, unsigned long long, CUstream);
#endif

#endif
