/* SPDX-License-Identifier: Apache-2.0 */
/* Memory sets of all widths. */
#include "capture.h"
#include "context.h"
#include "copy.h"
#include "device.h"
#include "entry.h"
#include "memory.h"
#include "stream.h"
#include "values.h"

static CUresult prepare(struct sim_work *work, const struct sim_device *device, CUdeviceptr to,
                        size_t pitch, unsigned value, unsigned element_bytes, size_t width,
                        size_t height)
{
    if (to % element_bytes || pitch % element_bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t bytes = width && height ? (height - 1) * pitch + width * element_bytes : 0;
    if (bytes && !sim_is_usable(to, bytes, device)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *work = (struct sim_work){.kind = SIM_WORK_SET,
                              .set = {.to = (char *)to,
                                      .width = width,
                                      .height = height,
                                      .pitch = pitch,
                                      .value = value,
                                      .element_bytes = element_bytes},
                              .set_parameters = {.dst = to,
                                                 .pitch = pitch,
                                                 .value = value,
                                                 .elementSize = element_bytes,
                                                 .width = width,
                                                 .height = height}};
    return CUDA_SUCCESS;
}

CUresult sim_set_prepare(const CUDA_MEMSET_NODE_PARAMS *parameters, CUcontext context,
                         struct sim_work *work)
{
    unsigned size = parameters->elementSize;
    if (size != 1 && size != 2 && size != 4) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return prepare(work, context->device, parameters->dst, parameters->pitch, parameters->value,
                   size, parameters->width, parameters->height);
}

/* "asynchronous with respect to the host except when the target is pinned host memory or a Unified
 * Memory region" (API synchronization behavior), or has CU_POINTER_ATTRIBUTE_SYNC_MEMOPS; `waits`:
 * for functions without a stream. */
static CUresult set(CUdeviceptr to, size_t pitch, unsigned value, unsigned element_bytes,
                    size_t width, size_t height, CUstream handle, bool waits)
{
    SIM_STREAM(handle, stream);
    struct sim_work work;
    CUresult status = waits ? sim_capture_check_unsafe() : CUDA_SUCCESS;
    if (status == CUDA_SUCCESS) {
        status =
            prepare(&work, stream->context->device, to, pitch, value, element_bytes, width, height);
    }
    if (status == CUDA_SUCCESS && sim_locate(to).place == SIM_PLACE_PAGEABLE) {
        status = CUDA_ERROR_INVALID_VALUE;
    }
    if (status != CUDA_SUCCESS || width == 0 || height == 0) {
        return status;
    }
    enum sim_place place = sim_locate(to).place;
    waits = waits && (place == SIM_PLACE_HOST || place == SIM_PLACE_MANAGED ||
                      (!stream->capture && sim_synchronizes(to)));
    if (place != SIM_PLACE_HOST && !stream->capture) {
        sim_values_set(&work, to, (height - 1) * pitch + width * element_bytes);
    }
    uint64_t position;
    status = sim_submit(stream, &work, &position);
    if (status == CUDA_SUCCESS && waits) {
        sim_wait_position(stream, position);
    }
    return status;
}

#define SIM_SET_FUNCTIONS(bits, type)                                                              \
    CUresult cuMemsetD##bits##_v2(CUdeviceptr dstDevice, type value, size_t N)                     \
    {                                                                                              \
        SIM_ENTER(cuMemsetD##bits##_v2);                                                           \
        return set(dstDevice, 0, value, bits / 8, N, 1, CU_STREAM_LEGACY, true);                   \
    }                                                                                              \
    CUresult cuMemsetD##bits##_v2_ptds(CUdeviceptr dstDevice, type value, size_t N)                \
    {                                                                                              \
        SIM_ENTER(cuMemsetD##bits##_v2_ptds);                                                      \
        return set(dstDevice, 0, value, bits / 8, N, 1, CU_STREAM_PER_THREAD, true);               \
    }                                                                                              \
    CUresult cuMemsetD##bits##Async(CUdeviceptr dstDevice, type value, size_t N, CUstream hStream) \
    {                                                                                              \
        SIM_ENTER(cuMemsetD##bits##Async);                                                         \
        return set(dstDevice, 0, value, bits / 8, N, 1, hStream, false);                           \
    }                                                                                              \
    CUresult cuMemsetD##bits##Async_ptsz(CUdeviceptr dstDevice, type value, size_t N,              \
                                         CUstream hStream)                                         \
    {                                                                                              \
        SIM_ENTER(cuMemsetD##bits##Async_ptsz);                                                    \
        return set(dstDevice, 0, value, bits / 8, N, 1, sim_per_thread(hStream), false);           \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##_v2(CUdeviceptr dstDevice, size_t dstPitch, type value,            \
                                    size_t Width, size_t Height)                                   \
    {                                                                                              \
        SIM_ENTER(cuMemsetD2D##bits##_v2);                                                         \
        return set(dstDevice, dstPitch, value, bits / 8, Width, Height, CU_STREAM_LEGACY, true);   \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, type value,       \
                                         size_t Width, size_t Height)                              \
    {                                                                                              \
        SIM_ENTER(cuMemsetD2D##bits##_v2_ptds);                                                    \
        return set(dstDevice, dstPitch, value, bits / 8, Width, Height, CU_STREAM_PER_THREAD,      \
                   true);                                                                          \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##Async(CUdeviceptr dstDevice, size_t dstPitch, type value,          \
                                      size_t Width, size_t Height, CUstream hStream)               \
    {                                                                                              \
        SIM_ENTER(cuMemsetD2D##bits##Async);                                                       \
        return set(dstDevice, dstPitch, value, bits / 8, Width, Height, hStream, false);           \
    }                                                                                              \
    CUresult cuMemsetD2D##bits##Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, type value,     \
                                           size_t Width, size_t Height, CUstream hStream)          \
    {                                                                                              \
        SIM_ENTER(cuMemsetD2D##bits##Async_ptsz);                                                  \
        return set(dstDevice, dstPitch, value, bits / 8, Width, Height, sim_per_thread(hStream),   \
                   false);                                                                         \
    }                                                                                              \
    _Static_assert(1, "")

SIM_SET_FUNCTIONS(8, unsigned char);
SIM_SET_FUNCTIONS(16, unsigned short);
SIM_SET_FUNCTIONS(32, unsigned int);
