/* SPDX-License-Identifier: Apache-2.0 */
/* What the program does with a handle of physical memory besides mapping it. If the handle is a
 * page of the pool, the driver gets its own handle instead. */
#include <stdlib.h>
#include <string.h>

#include "shim/driver/caller.h"
#include "shim/hooks/serve.h"
#include "shim/policy/proxies.h"
#include "shim/sharing/lent.h"

/* A page that was not created for export cannot be exported, and the attempt does not pin it. */
static CUresult export_page(void *out, CUmemGenericAllocationHandle_v1 handle,
                            CUmemAllocationHandleType type, unsigned long long flags)
{
    CUmemAllocationProp_v1 prop;
    CUmemGenericAllocationHandle_v1 chunk = 0;
    CUresult result = ms_proxies_properties(&prop, handle);
    if (result != CUDA_SUCCESS || !((unsigned)prop.requestedHandleTypes & (unsigned)type)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = ms_proxies_show(handle, &chunk);
    if (result == CUDA_SUCCESS) {
        result = MS_REAL(cuMemExportToShareableHandle)(out, chunk, type, flags);
    }
    if (result == CUDA_SUCCESS && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
        ms_proxies_are_malloc() && ms_library_at(ms_caller()) == MS_LIBRARY_C10_CUDA) {
        ms_lent_note(*(const int *)out);
    }
    return result;
}

CUresult ms_serve_cuMemExportToShareableHandle(void *shareableHandle,
                                               CUmemGenericAllocationHandle_v1 handle,
                                               CUmemAllocationHandleType handleType,
                                               unsigned long long flags)
{
    if (ms_proxies_own(handle)) {
        return export_page(shareableHandle, handle, handleType, flags);
    }
    return MS_REAL(cuMemExportToShareableHandle)(shareableHandle, handle, handleType, flags);
}

CUresult ms_serve_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp_v1 *prop,
                                                         CUmemGenericAllocationHandle_v1 handle)
{
    return ms_proxies_own(handle) ? ms_proxies_properties(prop, handle)
                                  : MS_REAL(cuMemGetAllocationPropertiesFromHandle)(prop, handle);
}

CUresult ms_serve_cuMemGetAllocationGranularity(size_t *granularity,
                                                const CUmemAllocationProp_v1 *prop,
                                                CUmemAllocationGranularity_flags option)
{
    return MS_REAL(cuMemGetAllocationGranularity)(granularity, prop, option);
}

/* The list with the driver's handles in place of ours. *changed gets a copy, which the caller
 * frees, if any was replaced; otherwise null. */
static CUresult show_listed(const CUarrayMapInfo_v1 *list, unsigned int count,
                            CUarrayMapInfo_v1 **changed)
{
    CUresult result = CUDA_SUCCESS;
    *changed = NULL;
    for (unsigned int i = 0; list && i < count && result == CUDA_SUCCESS; i++) {
        CUmemGenericAllocationHandle_v1 handle = list[i].memHandle.memHandle;
        if (list[i].memOperationType != CU_MEM_OPERATION_TYPE_MAP || !ms_proxies_own(handle)) {
            continue;
        }
        if (!*changed) {
            *changed = malloc(count * sizeof **changed);
            if (!*changed) {
                return CUDA_ERROR_OUT_OF_MEMORY;
            }
            memcpy(*changed, list, count * sizeof **changed);
        }
        result = ms_proxies_show(handle, &(*changed)[i].memHandle.memHandle);
    }
    return result;
}

static CUresult map_arrays(CUarrayMapInfo_v1 *list, unsigned int count, CUstream stream,
                           CUresult (*real)(CUarrayMapInfo_v1 *, unsigned int, CUstream))
{
    CUarrayMapInfo_v1 *changed = NULL;
    CUresult result = show_listed(list, count, &changed);
    if (result == CUDA_SUCCESS) {
        result = real(changed ? changed : list, count, stream);
    }
    free(changed);
    return result;
}

CUresult ms_serve_cuMemMapArrayAsync(CUarrayMapInfo_v1 *mapInfoList, unsigned int count,
                                     CUstream hStream)
{
    return map_arrays(mapInfoList, count, hStream, MS_REAL(cuMemMapArrayAsync));
}

CUresult ms_serve_cuMemMapArrayAsync_ptsz(CUarrayMapInfo_v1 *mapInfoList, unsigned int count,
                                          CUstream hStream)
{
    return map_arrays(mapInfoList, count, hStream, MS_REAL(cuMemMapArrayAsync_ptsz));
}
