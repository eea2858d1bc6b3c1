/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's interface under its exported names: every version and stream flavour has a prototype
 * of its own, and no macro renames one into another. Include this instead of cuda.h. */
#ifndef MEMSHIM_SHIM_TABLES_CUDA_API_H
#define MEMSHIM_SHIM_TABLES_CUDA_API_H

#include <stddef.h>

/* cuda.h's own switch: declares the earlier versions as well, and undoes its renaming. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

/* Declarations that headers before the named version lack. Only pointers to these types are passed
 * on. */
#if CUDA_VERSION < 13000
#    define CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED \
        ((CUdevice_attribute)141)
#endif
#if CUDA_VERSION < 12050
typedef struct CUctxCreateParams_st CUctxCreateParams;
#endif
#if CUDA_VERSION < 12080
#    define CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE 21
#    define CU_MEM_CREATE_USAGE_HW_DECOMPRESS             0x2
typedef struct CUmemcpyAttributes_st CUmemcpyAttributes_v1;
typedef struct CUDA_MEMCPY3D_BATCH_OP_st CUDA_MEMCPY3D_BATCH_OP_v1;
#endif

#endif
