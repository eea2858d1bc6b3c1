/* SPDX-License-Identifier: Apache-2.0 */
/* A library that is loaded late: sites_plugin and sites_plugin_again are alike, but for the file.
 */
#include <cuda.h>
#include <cudaTypedefs.h>

__attribute__((visibility("default"))) CUresult plugin_allocate(PFN_cuMemAlloc_v3020 allocate,
                                                                CUdeviceptr *block, size_t bytes);

CUresult plugin_allocate(PFN_cuMemAlloc_v3020 allocate, CUdeviceptr *block, size_t bytes)
{
    CUresult result = allocate(block, bytes);
    return result == CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
}
