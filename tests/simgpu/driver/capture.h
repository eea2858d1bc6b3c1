/* SPDX-License-Identifier: Apache-2.0 */
/* The capture of streams into graphs. All under sim_lock. */
#ifndef SIMGPU_CAPTURE_H
#define SIMGPU_CAPTURE_H

#include "driver_api.h"
#include "work.h"

#include <stdbool.h>

struct sim_range;

/* Work on a capturing stream becomes a node behind the stream's frontier. Takes over *work. */
CUresult sim_capture_add(CUstream stream, struct sim_work *work);

/* For calls that a capturing stream does not allow: invalidates the capture, and returns the
 * error. */
CUresult sim_capture_refuse(CUstream stream);

/* CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, with the captures invalidated, if `stream` is a legacy stream
 * and blocking streams of its context capture; otherwise CUDA_SUCCESS. */
CUresult sim_capture_forbids_legacy(CUstream stream);

/* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, with captures invalidated, if the calling thread may not
 * make potentially unsafe calls now (cuThreadExchangeStreamCaptureMode). */
CUresult sim_capture_check_unsafe(void);

/* CUDA_ERROR_CAPTURED_EVENT, with the capture invalidated, if the event's latest record was
 * captured. */
CUresult sim_capture_check_event(CUevent event);

/* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, with the captures invalidated, if a stream of the context
 * captures. */
CUresult sim_capture_invalidate_context(CUcontext context);

/* A capturing stream records, or waits for, an event. */
CUresult sim_capture_record(CUstream stream, CUevent event);
CUresult sim_capture_wait(CUstream stream, CUevent event);

/* cuMemAllocAsync and cuMemFreeAsync on a capturing stream: nodes. */
CUresult sim_capture_alloc(CUstream stream, size_t bytes, CUdeviceptr *address);
CUresult sim_capture_free(CUstream stream, struct sim_range *range);

/* A capturing stream is destroyed. */
void sim_capture_leave(CUstream stream);

#endif
