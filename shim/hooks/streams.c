/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: begins and ends of captures, creation and destruction. */
#include "shim/device/capture.h"
#include "shim/device/stream.h"
#include "shim/hooks/serve.h"

CUresult ms_serve_cuStreamBeginCapture(CUstream hStream)
{
    ms_capture_announce(hStream, false);
    return ms_capture_begun(hStream, false, MS_REAL(cuStreamBeginCapture)(hStream));
}

CUresult ms_serve_cuStreamBeginCapture_ptsz(CUstream hStream)
{
    ms_capture_announce(hStream, true);
    return ms_capture_begun(hStream, true, MS_REAL(cuStreamBeginCapture_ptsz)(hStream));
}

CUresult ms_serve_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
    ms_capture_announce(hStream, false);
    return ms_capture_begun(hStream, false, MS_REAL(cuStreamBeginCapture_v2)(hStream, mode));
}

CUresult ms_serve_cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode)
{
    ms_capture_announce(hStream, true);
    return ms_capture_begun(hStream, true, MS_REAL(cuStreamBeginCapture_v2_ptsz)(hStream, mode));
}

CUresult ms_serve_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                              const CUgraphNode *dependencies,
                                              const CUgraphEdgeData *dependencyData,
                                              size_t numDependencies, CUstreamCaptureMode mode)
{
    ms_capture_announce(hStream, false);
    return ms_capture_begun(hStream, false,
                            MS_REAL(cuStreamBeginCaptureToGraph)(hStream, hGraph, dependencies,
                                                                 dependencyData, numDependencies,
                                                                 mode));
}

CUresult ms_serve_cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph,
                                                   const CUgraphNode *dependencies,
                                                   const CUgraphEdgeData *dependencyData,
                                                   size_t numDependencies, CUstreamCaptureMode mode)
{
    ms_capture_announce(hStream, true);
    return ms_capture_begun(hStream, true,
                            MS_REAL(cuStreamBeginCaptureToGraph_ptsz)(hStream, hGraph, dependencies,
                                                                      dependencyData,
                                                                      numDependencies, mode));
}

CUresult ms_serve_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    return ms_capture_ended(hStream, false, MS_REAL(cuStreamEndCapture)(hStream, phGraph));
}

CUresult ms_serve_cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph)
{
    return ms_capture_ended(hStream, true, MS_REAL(cuStreamEndCapture_ptsz)(hStream, phGraph));
}

/* --- creation and destruction ---------------------------------------------------------------- */

/* Gives the stream a record, so that a fence of the device includes its work from the first on. */
static CUresult created(CUstream *stream, CUresult result)
{
    struct ms_stream_view view;
    if (result == CUDA_SUCCESS && stream) {
        (void)ms_stream_resolve(*stream, false, &view); /* otherwise it is adopted at its first
                                                           use */
    }
    return result;
}

CUresult ms_serve_cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    return created(phStream, MS_REAL(cuStreamCreate)(phStream, Flags));
}

CUresult ms_serve_cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    return created(phStream, MS_REAL(cuStreamCreateWithPriority)(phStream, flags, priority));
}

CUresult ms_serve_cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx,
                                         unsigned int flags, int priority)
{
    return created(phStream, MS_REAL(cuGreenCtxStreamCreate)(phStream, greenCtx, flags, priority));
}

CUresult ms_serve_cuStreamDestroy(CUstream hStream)
{
    return ms_stream_destroy(hStream, MS_REAL(cuStreamDestroy));
}

CUresult ms_serve_cuStreamDestroy_v2(CUstream hStream)
{
    return ms_stream_destroy(hStream, MS_REAL(cuStreamDestroy_v2));
}
