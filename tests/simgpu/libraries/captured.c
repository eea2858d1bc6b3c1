/* SPDX-License-Identifier: Apache-2.0 */
/* The node that a call of a library leaves in a graph. */
#include "captured.h"

/* cuda.h of CUDA 13 declares newer versions, which older drivers lack. */
#undef cuStreamGetCaptureInfo_v2
#undef cuStreamUpdateCaptureDependencies
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **dependencies, size_t *count);
CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *dependencies, size_t count,
                                           unsigned int flags);

void simcublas_queue(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUgraph graph = NULL;
    CUgraphNode node = NULL;
    const CUgraphNode *dependencies = NULL;
    size_t count = 0;
    if (cuStreamGetCaptureInfo_v2(stream, &status, NULL, &graph, &dependencies, &count) ==
            CUDA_SUCCESS &&
        status == CU_STREAM_CAPTURE_STATUS_ACTIVE &&
        cuGraphAddEmptyNode(&node, graph, dependencies, count) == CUDA_SUCCESS) {
        (void)cuStreamUpdateCaptureDependencies(stream, &node, 1,
                                                CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    }
}
