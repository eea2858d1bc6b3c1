/* SPDX-License-Identifier: Apache-2.0 */
/* Looks up the functions without a row of their own, and converts statuses. */
#include "shim/driver/driver.h"

#include <stdlib.h>

#include "allocator/base/locks/lock.h"

static struct ms_driver_functions functions;
const struct ms_driver_functions *_Atomic ms_driver_found;

static void find_all(void)
{
#define MS_DRIVER_ROW(symbol) functions.symbol = (__typeof__(&(symbol)))ms_real_find(#symbol);
    MS_DRIVER_ROWS
#undef MS_DRIVER_ROW
#define FIND(symbol) functions.symbol = (__typeof__(functions.symbol))ms_real_find(#symbol)
    FIND(cuCtxRecordEvent);
    FIND(cuGraphKernelNodeGetParams_v2);
    FIND(cuFuncGetParamInfo);
    FIND(cuLibraryGetKernelCount);
    FIND(cuKernelGetParamInfo);
#undef FIND
}

const struct ms_driver_functions *ms_driver_find(void)
{
    ms_lock_acquire(MS_LOCK(DRIVER));
    if (atomic_load_explicit(&ms_driver_found, memory_order_relaxed) == NULL) {
        find_all();
        atomic_store_explicit(&ms_driver_found, &functions, memory_order_release);
    }
    ms_lock_release(MS_LOCK(DRIVER));
    return &functions;
}

CUgraphNode *ms_driver_graph_nodes(CUgraph graph, size_t *count)
{
    const struct ms_driver_functions *driver = ms_driver();
    *count = 0;
    if (driver->cuGraphGetNodes(graph, NULL, count) != CUDA_SUCCESS || *count == 0) {
        return NULL;
    }
    CUgraphNode *nodes = calloc(*count, sizeof(CUgraphNode));
    if (nodes != NULL && driver->cuGraphGetNodes(graph, nodes, count) != CUDA_SUCCESS) {
        free(nodes);
        nodes = NULL;
    }
    return nodes;
}

ms_status_t ms_status_from(CUresult result)
{
    switch (result) {
    case CUDA_SUCCESS:
        return MS_OK;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return MS_ERR_NO_MEMORY;
    case CUDA_ERROR_NOT_READY:
        return MS_ERR_NOT_READY;
    default:
        return (ms_status_t)result;
    }
}

CUresult ms_result_from(ms_status_t status)
{
    switch (status) {
    case MS_OK:
        return CUDA_SUCCESS;
    case MS_ERR_NO_MEMORY:
    case MS_ERR_LIMIT:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case MS_ERR_NOT_READY:
        return CUDA_ERROR_NOT_READY;
    case MS_ERR_NOT_SUPPORTED:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return status > 0 ? (CUresult)status : CUDA_ERROR_INVALID_VALUE;
    }
}
