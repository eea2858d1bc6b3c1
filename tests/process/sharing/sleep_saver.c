/* SPDX-License-Identifier: Apache-2.0 */
/* See sleep_saver.h. As a library it stands before the runtime's cudaMalloc and cudaFree, which is
 * how torch_memory_saver's preload works. */
#include "sleep_saver.h"

#include <stdlib.h>

#define MOST_REGIONS 64

static struct region {
    CUdeviceptr at;
    size_t bytes;
    CUmemGenericAllocationHandle chunk;
    void *contents; /* asleep */
} regions[MOST_REGIONS];

static CUresult back(struct region *region)
{
    const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                           .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {.location = on_device.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult status = cuMemCreate(&region->chunk, region->bytes, &on_device, 0);
    if (status == CUDA_SUCCESS) {
        status = cuMemMap(region->at, region->bytes, 0, region->chunk, 0);
    }
    return status != CUDA_SUCCESS ? status : cuMemSetAccess(region->at, region->bytes, &access, 1);
}

static CUresult unback(struct region *region)
{
    CUresult status = cuMemUnmap(region->at, region->bytes);
    return status != CUDA_SUCCESS ? status : cuMemRelease(region->chunk);
}

static struct region *find(CUdeviceptr at)
{
    for (struct region *region = regions; region < regions + MOST_REGIONS; region++) {
        if (region->at == at) {
            return region;
        }
    }
    return NULL;
}

CUresult saver_new(CUdeviceptr *at, size_t bytes)
{
    struct region *region = find(0);
    CUresult status = CUDA_ERROR_OUT_OF_MEMORY;
    if (region != NULL) {
        region->bytes = bytes;
        status = cuMemAddressReserve(&region->at, bytes, 0, 0, 0);
    }
    if (status == CUDA_SUCCESS) {
        *at = region->at;
        status = back(region);
    }
    return status;
}

CUresult saver_delete(CUdeviceptr at)
{
    struct region *region = find(at);
    CUresult status = region == NULL ? CUDA_ERROR_INVALID_VALUE : unback(region);
    if (status == CUDA_SUCCESS) {
        status = cuMemAddressFree(at, region->bytes);
        *region = (struct region){0};
    }
    return status;
}

CUresult saver_sleep(void)
{
    CUresult status = cuCtxSynchronize();
    for (struct region *region = regions; region < regions + MOST_REGIONS; region++) {
        if (region->at != 0 && status == CUDA_SUCCESS) {
            region->contents = malloc(region->bytes);
            status = cuMemcpyDtoH(region->contents, region->at, region->bytes);
            status = status != CUDA_SUCCESS ? status : unback(region);
        }
    }
    return status;
}

CUresult saver_wake(void)
{
    CUresult status = CUDA_SUCCESS;
    for (struct region *region = regions; region < regions + MOST_REGIONS; region++) {
        if (region->at != 0 && status == CUDA_SUCCESS) {
            status = back(region);
            status = status != CUDA_SUCCESS
                         ? status
                         : cuMemcpyHtoD(region->at, region->contents, region->bytes);
            free(region->contents);
            region->contents = NULL;
        }
    }
    return status;
}

int saver_has_its_own(void)
{
    int own = 1;
    for (struct region *region = regions; region < regions + MOST_REGIONS; region++) {
        CUmemGenericAllocationHandle found = 0;
        if (region->at != 0) {
            own = own &&
                  cuMemRetainAllocationHandle(&found, (void *)(uintptr_t)region->at) ==
                      CUDA_SUCCESS &&
                  found == region->chunk && cuMemRelease(found) == CUDA_SUCCESS;
        }
    }
    return own;
}

#ifdef SAVER_PRELOAD
/* What cudaMalloc returns: cudaError_t has the driver's numbers for these. */
int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);

int cudaMalloc(void **pointer, size_t bytes)
{
    CUdeviceptr at = 0;
    int status = saver_new(&at, bytes);
    *pointer = (void *)(uintptr_t)at;
    return status;
}

int cudaFree(void *pointer)
{
    return saver_delete((CUdeviceptr)(uintptr_t)pointer);
}
#endif
