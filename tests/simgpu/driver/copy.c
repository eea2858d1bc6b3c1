/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of the simulated driver. See copy.h. */
#include "copy.h"

#include "../simgpu.h"

#include "array.h"
#include "capture.h"
#include "context.h"
#include "device.h"
#include "entry.h"
#include "memory.h"
#include "stream.h"
#include "values.h"
#include "vmm.h"

#include <stdlib.h>
#include <string.h>

/* How the host takes part in a copy. */
enum copy_mode {
    COPY_ASYNC,
    COPY_SYNC, /* returns when the copy is done, except to a device from memory of a device or
                  pageable memory */
};

/* ---- checks --------------------------------------------------------------------------------- */

/* Checks one end of a copy on a device. The driver stages memory from cuMemAlloc that the device
 * cannot access, and refuses mapped memory that it cannot access (shim/hooks/detour.h). */
static CUresult check_end(const struct sim_device *device, const char *address, size_t bytes)
{
    return bytes == 0 || sim_is_usable((CUdeviceptr)address, bytes, device)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static size_t span(size_t width, size_t height, size_t depth, size_t pitch, size_t slice)
{
    return width && height && depth ? (depth - 1) * slice + (height - 1) * pitch + width : 0;
}

static CUresult check_copy(const struct sim_copy *copy, const struct sim_device *to_device,
                           const struct sim_device *from_device)
{
    size_t to_bytes = span(copy->width, copy->height, copy->depth, copy->to_pitch, copy->to_slice);
    size_t from_bytes =
        span(copy->width, copy->height, copy->depth, copy->from_pitch, copy->from_slice);
    CUresult status = check_end(to_device, copy->to, to_bytes);
    return status == CUDA_SUCCESS ? check_end(from_device, copy->from, from_bytes) : status;
}

/* ---- submission ------------------------------------------------------------------------------ */

static bool is_host(enum sim_place place)
{
    return place == SIM_PLACE_PAGEABLE || place == SIM_PLACE_HOST;
}

/*
 * "For transfers from pageable host memory to device memory, a stream sync is performed before the
 * copy is initiated. The function will return once the pageable buffer has been copied to the
 * staging memory for DMA transfer to device memory, but the DMA to final destination may not have
 * completed. [...] For transfers from device memory to device memory, no host-side synchronization
 * is performed" (API synchronization behavior, of the functions without a stream).
 */
static CUresult stage(struct sim_copy *copy)
{
    size_t bytes = span(copy->width, copy->height, copy->depth, copy->from_pitch, copy->from_slice);
    if (bytes == 0 || sim_copy_is_dropped(copy)) {
        return CUDA_SUCCESS;
    }
    copy->staged = malloc(bytes);
    if (!copy->staged) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(copy->staged, copy->from, bytes);
    copy->from = copy->staged;
    return CUDA_SUCCESS;
}

static void follow_values(struct sim_copy *copy)
{
    sim_values_copy(
        copy, sim_locate((CUdeviceptr)copy->to), sim_locate((CUdeviceptr)copy->from),
        span(copy->width, copy->height, copy->depth, copy->to_pitch, copy->to_slice),
        span(copy->width, copy->height, copy->depth, copy->from_pitch, copy->from_slice));
}

static bool synchronizes(const struct sim_copy *copy)
{
    return sim_synchronizes((CUdeviceptr)copy->to) || sim_synchronizes((CUdeviceptr)copy->from);
}

static enum sim_bus bus_of(struct sim_location to, struct sim_location from)
{
    if (!sim_settings.latency || (to.device == NULL) == (from.device == NULL)) {
        return SIM_BUS_NONE;
    }
    return to.device == NULL ? SIM_BUS_DOWN : SIM_BUS_UP;
}

static CUresult submit_copy(struct sim_work *work, CUstream handle, enum copy_mode mode)
{
    SIM_STREAM(handle, stream);
    struct sim_location there = sim_locate((CUdeviceptr)work->copy.to);
    struct sim_location here = sim_locate((CUdeviceptr)work->copy.from);
    enum sim_place to = there.place, from = here.place;
    work->copy.bus = bus_of(there, here);
    bool waits = mode == COPY_SYNC
                     ? is_host(to) || from == SIM_PLACE_HOST || synchronizes(&work->copy)
                     : to == SIM_PLACE_PAGEABLE || (is_host(to) && is_host(from));
    if (stream->capture) {
        if (mode == COPY_SYNC) {
            return sim_capture_refuse(stream);
        }
        return sim_submit(stream, work, NULL);
    }
    if (is_host(to) && !is_host(from) && sim_values_come_late(waits)) {
        sim_wait_stream(stream);
    }
    follow_values(&work->copy);
    bool staged = !waits && from == SIM_PLACE_PAGEABLE;
    if (staged && mode == COPY_SYNC) {
        sim_wait_stream(stream);
    }
    if (staged && sim_stream_defers(stream)) {
        CUresult status = stage(&work->copy);
        if (status != CUDA_SUCCESS) {
            return status;
        }
    }
    /* As if its stream had nothing but copies before it. */
    work->copy.over_ns = work->copy.bus != SIM_BUS_NONE ? sim_copy_over_ns(&work->copy) : 0;
    uint64_t position;
    CUresult status = sim_submit(stream, work, &position);
    if (status == CUDA_SUCCESS && waits) {
        sim_schedule_seen(stream);
        sim_wait_position(stream, position);
    }
    return status;
}

static CUresult copy_line(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle,
                          enum copy_mode mode)
{
    SIM_STREAM(handle, stream);
    struct sim_work work = {
        .kind = SIM_WORK_COPY,
        .copy = {
            .to = (char *)to, .from = (const char *)from, .width = bytes, .height = 1, .depth = 1}};
    if (mode == COPY_SYNC) {
        CUresult unsafe = sim_capture_check_unsafe();
        if (unsafe != CUDA_SUCCESS) {
            return unsafe;
        }
    }
    if (bytes == 0) {
        return CUDA_SUCCESS;
    }
    const struct sim_device *device = stream->context->device;
    CUresult status = check_copy(&work.copy, device, device);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    CUDA_MEMCPY3D *parameters = &work.copy_parameters;
    *parameters = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                                  .srcDevice = from,
                                  .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                  .dstDevice = to,
                                  .WidthInBytes = bytes,
                                  .Height = 1,
                                  .Depth = 1};
    return submit_copy(&work, handle, mode);
}

/* A function that waits, and its variant for the thread's own default stream. */
#define SIM_SYNC_PAIR(symbol, parameters, ...)   \
    CUresult symbol parameters                   \
    {                                            \
        SIM_ENTER(symbol);                       \
        CUstream hStream = CU_STREAM_LEGACY;     \
        return __VA_ARGS__;                      \
    }                                            \
    CUresult symbol##_ptds parameters            \
    {                                            \
        SIM_ENTER(symbol##_ptds);                \
        CUstream hStream = CU_STREAM_PER_THREAD; \
        return __VA_ARGS__;                      \
    }                                            \
    _Static_assert(1, "")

SIM_SYNC_PAIR(cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount),
              copy_line(dst, src, ByteCount, hStream, COPY_SYNC));
SIM_SYNC_PAIR(cuMemcpyHtoD_v2, (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount),
              copy_line(dstDevice, (CUdeviceptr)srcHost, ByteCount, hStream, COPY_SYNC));
SIM_SYNC_PAIR(cuMemcpyDtoH_v2, (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount),
              copy_line((CUdeviceptr)dstHost, srcDevice, ByteCount, hStream, COPY_SYNC));
SIM_SYNC_PAIR(cuMemcpyDtoD_v2, (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount),
              copy_line(dstDevice, srcDevice, ByteCount, hStream, COPY_SYNC));
SIM_STREAM_PAIR(cuMemcpyAsync,
                (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream),
                copy_line(dst, src, ByteCount, hStream, COPY_ASYNC));
SIM_STREAM_PAIR(cuMemcpyHtoDAsync_v2,
                (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream),
                copy_line(dstDevice, (CUdeviceptr)srcHost, ByteCount, hStream, COPY_ASYNC));
SIM_STREAM_PAIR(cuMemcpyDtoHAsync_v2,
                (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
                copy_line((CUdeviceptr)dstHost, srcDevice, ByteCount, hStream, COPY_ASYNC));
SIM_STREAM_PAIR(cuMemcpyDtoDAsync_v2,
                (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
                copy_line(dstDevice, srcDevice, ByteCount, hStream, COPY_ASYNC));

/* ---- copies between contexts ----------------------------------------------------------------- */

static uint32_t peers_of(CUcontext to, CUcontext from)
{
    return to->device == from->device ? 0 : (1u << to->device->index) | (1u << from->device->index);
}

static CUresult submit_peer(CUstream stream, struct sim_work *work, enum copy_mode mode)
{
    uint64_t position;
    CUresult status = sim_submit(stream, work, &position);
    if (status == CUDA_SUCCESS && mode == COPY_SYNC && !stream->capture &&
        synchronizes(&work->copy)) {
        sim_wait_position(stream, position);
    }
    return status;
}

static CUresult copy_peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                          CUcontext from_context, size_t bytes, CUstream handle,
                          enum copy_mode mode)
{
    SIM_STREAM(handle, stream);
    if (sim_context_check(to_context) != CUDA_SUCCESS ||
        sim_context_check(from_context) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (bytes == 0) {
        return CUDA_SUCCESS;
    }
    struct sim_work work = {
        .kind = SIM_WORK_COPY,
        .copy = {
            .to = (char *)to, .from = (const char *)from, .width = bytes, .height = 1, .depth = 1}};
    work.copy.peers = peers_of(to_context, from_context);
    CUresult status = check_copy(&work.copy, to_context->device, from_context->device);
    if (status == CUDA_SUCCESS && !stream->capture) {
        follow_values(&work.copy);
    }
    return status == CUDA_SUCCESS ? submit_peer(stream, &work, mode) : status;
}

SIM_SYNC_PAIR(cuMemcpyPeer,
              (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
               CUcontext srcContext, size_t ByteCount),
              copy_peer(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream,
                        COPY_SYNC));
SIM_STREAM_PAIR(cuMemcpyPeerAsync,
                (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                 CUcontext srcContext, size_t ByteCount, CUstream hStream),
                copy_peer(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream,
                          COPY_ASYNC));

/* ---- rows and slices ------------------------------------------------------------------------- */

struct copy_end {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    size_t x, y, z, pitch, height;
};

static CUresult resolve_end(const struct copy_end *end, size_t width, char **start, size_t *pitch,
                            size_t *slice)
{
    size_t rows = end->height;
    switch (end->type) {
    case CU_MEMORYTYPE_HOST:
        *start = (char *)end->host;
        break;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        *start = (char *)end->device;
        break;
    case CU_MEMORYTYPE_ARRAY:
        if (!sim_array_is_valid(end->array)) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        *start = end->array->address;
        *pitch = end->array->row_bytes;
        *slice = end->array->row_bytes * end->array->rows;
        *start += end->z * *slice + end->y * *pitch + end->x;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pitch = end->pitch ? end->pitch : width + end->x;
    *slice = *pitch * rows;
    *start += end->z * *slice + end->y * *pitch + end->x;
    return CUDA_SUCCESS;
}

static CUresult prepare(const CUDA_MEMCPY3D *p, const struct sim_device *to_device,
                        const struct sim_device *from_device, struct sim_work *work)
{
    struct copy_end from = {
        p->srcMemoryType, p->srcHost,     p->srcDevice,
        p->srcArray,      p->srcXInBytes, p->srcY,
        p->srcZ,          p->srcPitch,    p->srcHeight ? p->srcHeight : p->Height};
    struct copy_end to = {
        p->dstMemoryType, p->dstHost,     p->dstDevice,
        p->dstArray,      p->dstXInBytes, p->dstY,
        p->dstZ,          p->dstPitch,    p->dstHeight ? p->dstHeight : p->Height};
    *work = (struct sim_work){.kind = SIM_WORK_COPY, .copy_parameters = *p};
    struct sim_copy *copy = &work->copy;
    copy->width = p->WidthInBytes;
    copy->height = p->Height;
    copy->depth = p->Depth;
    char *source = NULL;
    CUresult status =
        resolve_end(&from, p->WidthInBytes, &source, &copy->from_pitch, &copy->from_slice);
    if (status == CUDA_SUCCESS) {
        copy->from = source;
        status = resolve_end(&to, p->WidthInBytes, &copy->to, &copy->to_pitch, &copy->to_slice);
    }
    /* "dstPitch must be greater than or equal to WidthInBytes + dstXInBytes" (cuda.h). */
    if (status == CUDA_SUCCESS && p->Height * p->Depth > 1 &&
        (copy->to_pitch < copy->width || copy->from_pitch < copy->width)) {
        status = CUDA_ERROR_INVALID_VALUE;
    }
    return status == CUDA_SUCCESS ? check_copy(copy, to_device, from_device) : status;
}

CUresult sim_copy_prepare_3d(const CUDA_MEMCPY3D *parameters, CUcontext context,
                             struct sim_work *work)
{
    return prepare(parameters, context->device, context->device, work);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *parameters, CUstream handle, enum copy_mode mode)
{
    SIM_STREAM(handle, stream);
    struct sim_work work;
    if (!parameters) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = mode == COPY_SYNC ? sim_capture_check_unsafe() : CUDA_SUCCESS;
    if (status == CUDA_SUCCESS) {
        status = sim_copy_prepare_3d(parameters, stream->context, &work);
    }
    if (status != CUDA_SUCCESS ||
        span(work.copy.width, work.copy.height, work.copy.depth, 1, 1) == 0) {
        return status;
    }
    return submit_copy(&work, handle, mode);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *p, CUstream handle, enum copy_mode mode)
{
    if (!p) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_MEMCPY3D wide = {.srcXInBytes = p->srcXInBytes,
                          .srcY = p->srcY,
                          .srcMemoryType = p->srcMemoryType,
                          .srcHost = p->srcHost,
                          .srcDevice = p->srcDevice,
                          .srcArray = p->srcArray,
                          .srcPitch = p->srcPitch,
                          .dstXInBytes = p->dstXInBytes,
                          .dstY = p->dstY,
                          .dstMemoryType = p->dstMemoryType,
                          .dstHost = p->dstHost,
                          .dstDevice = p->dstDevice,
                          .dstArray = p->dstArray,
                          .dstPitch = p->dstPitch,
                          .WidthInBytes = p->WidthInBytes,
                          .Height = p->Height,
                          .Depth = 1};
    return copy_3d(&wide, handle, mode);
}

SIM_SYNC_PAIR(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *pCopy), copy_2d(pCopy, hStream, COPY_SYNC));
SIM_SYNC_PAIR(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *pCopy),
              copy_2d(pCopy, hStream, COPY_SYNC));
SIM_SYNC_PAIR(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *pCopy), copy_3d(pCopy, hStream, COPY_SYNC));
SIM_STREAM_PAIR(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *pCopy, CUstream hStream),
                copy_2d(pCopy, hStream, COPY_ASYNC));
SIM_STREAM_PAIR(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *pCopy, CUstream hStream),
                copy_3d(pCopy, hStream, COPY_ASYNC));

static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *p, CUstream handle, enum copy_mode mode)
{
    SIM_STREAM(handle, stream);
    if (!p) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUcontext from = p->srcContext ? p->srcContext : stream->context;
    CUcontext to = p->dstContext ? p->dstContext : stream->context;
    if (sim_context_check(from) != CUDA_SUCCESS || sim_context_check(to) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    CUDA_MEMCPY3D plain = {.srcXInBytes = p->srcXInBytes,
                           .srcY = p->srcY,
                           .srcZ = p->srcZ,
                           .srcMemoryType = p->srcMemoryType,
                           .srcHost = p->srcHost,
                           .srcDevice = p->srcDevice,
                           .srcArray = p->srcArray,
                           .srcPitch = p->srcPitch,
                           .srcHeight = p->srcHeight,
                           .dstXInBytes = p->dstXInBytes,
                           .dstY = p->dstY,
                           .dstZ = p->dstZ,
                           .dstMemoryType = p->dstMemoryType,
                           .dstHost = p->dstHost,
                           .dstDevice = p->dstDevice,
                           .dstArray = p->dstArray,
                           .dstPitch = p->dstPitch,
                           .dstHeight = p->dstHeight,
                           .WidthInBytes = p->WidthInBytes,
                           .Height = p->Height,
                           .Depth = p->Depth};
    struct sim_work work;
    CUresult status = prepare(&plain, to->device, from->device, &work);
    if (status == CUDA_SUCCESS) {
        work.copy.peers = peers_of(to, from);
        status = submit_peer(stream, &work, mode);
    }
    return status;
}

SIM_SYNC_PAIR(cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *pCopy),
              copy_3d_peer(pCopy, hStream, COPY_SYNC));
SIM_STREAM_PAIR(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream),
                copy_3d_peer(pCopy, hStream, COPY_ASYNC));

static CUresult copy_array_line(CUarray array, size_t offset, const void *host, size_t bytes,
                                bool to_array, CUstream handle, enum copy_mode mode)
{
    if (!sim_array_is_valid(array)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUdeviceptr in_array = (CUdeviceptr)array->address + offset;
    return to_array ? copy_line(in_array, (CUdeviceptr)host, bytes, handle, mode)
                    : copy_line((CUdeviceptr)host, in_array, bytes, handle, mode);
}

SIM_SYNC_PAIR(cuMemcpyHtoA_v2,
              (CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount),
              copy_array_line(dstArray, dstOffset, srcHost, ByteCount, true, hStream, COPY_SYNC));
SIM_SYNC_PAIR(cuMemcpyAtoH_v2,
              (void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount),
              copy_array_line(srcArray, srcOffset, dstHost, ByteCount, false, hStream, COPY_SYNC));
SIM_STREAM_PAIR(cuMemcpyHtoAAsync_v2,
                (CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount,
                 CUstream hStream),
                copy_array_line(dstArray, dstOffset, srcHost, ByteCount, true, hStream,
                                COPY_ASYNC));
SIM_STREAM_PAIR(cuMemcpyAtoHAsync_v2,
                (void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                 CUstream hStream),
                copy_array_line(srcArray, srcOffset, dstHost, ByteCount, false, hStream,
                                COPY_ASYNC));

/* ---- batches --------------------------------------------------------------------------------- */

/* "This API does not support [...] the legacy default stream" (cuda.h, cuMemcpyBatchAsync). The
 * driver checks that before anything else; in the newer ABIs it refuses the null stream even where
 * that means the thread's own (seen: an H200, driver 580). */
#define SIM_BATCH_PAIR(symbol, both, parameters, ...)            \
    CUresult symbol parameters                                   \
    {                                                            \
        SIM_JUDGE(hStream, CUDA_ERROR_INVALID_VALUE);            \
        SIM_ENTER(symbol);                                       \
        return __VA_ARGS__;                                      \
    }                                                            \
    CUresult symbol##_ptsz parameters                            \
    {                                                            \
        SIM_JUDGE(hStream || !(both), CUDA_ERROR_INVALID_VALUE); \
        SIM_ENTER(symbol##_ptsz);                                \
        hStream = sim_per_thread(hStream);                       \
        return __VA_ARGS__;                                      \
    }                                                            \
    _Static_assert(1, "")

#if CUDA_VERSION >= 12080
static CUresult copy_batch(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *sizes,
                           size_t count, size_t *failed, CUstream handle)
{
    SIM_STREAM(handle, stream);
    if (!to || !from || !sizes || count == 0 || stream->legacy) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        CUresult status = copy_line(to[i], from[i], sizes[i], handle, COPY_ASYNC);
        if (status != CUDA_SUCCESS) {
            if (failed) {
                *failed = i;
            }
            return status;
        }
    }
    return CUDA_SUCCESS;
}

SIM_BATCH_PAIR(cuMemcpyBatchAsync, false,
               (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx,
                CUstream hStream),
               ((void)attrs, (void)attrsIdxs, (void)numAttrs,
                copy_batch(dsts, srcs, sizes, count, failIdx, hStream)));

static CUresult operand_end(const CUmemcpy3DOperand *operand, struct copy_end *end, size_t *width,
                            CUextent3D extent)
{
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER) {
        *end = (struct copy_end){.type = CU_MEMORYTYPE_UNIFIED,
                                 .device = operand->op.ptr.ptr,
                                 .pitch = operand->op.ptr.rowLength,
                                 .height = operand->op.ptr.layerHeight ? operand->op.ptr.layerHeight
                                                                       : extent.height};
        *width = extent.width;
        return CUDA_SUCCESS;
    }
    if (operand->type != CU_MEMCPY_OPERAND_TYPE_ARRAY ||
        !sim_array_is_valid(operand->op.array.array)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUarray array = operand->op.array.array;
    size_t element = array->row_bytes / array->descriptor.Width;
    *end = (struct copy_end){.type = CU_MEMORYTYPE_ARRAY,
                             .array = array,
                             .x = operand->op.array.offset.x * element,
                             .y = operand->op.array.offset.y,
                             .z = operand->op.array.offset.z};
    *width = extent.width * element;
    return CUDA_SUCCESS;
}

static CUresult copy_batch_3d(const CUDA_MEMCPY3D_BATCH_OP *list, size_t count, size_t *failed,
                              CUstream handle)
{
    SIM_STREAM(handle, stream);
    if (!list || count == 0 || stream->legacy) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        struct copy_end from, to;
        size_t from_width, to_width;
        CUresult status = operand_end(&list[i].src, &from, &from_width, list[i].extent);
        if (status == CUDA_SUCCESS) {
            status = operand_end(&list[i].dst, &to, &to_width, list[i].extent);
        }
        if (status == CUDA_SUCCESS) {
            CUDA_MEMCPY3D plain = {.srcMemoryType = from.type,
                                   .srcDevice = from.device,
                                   .srcArray = from.array,
                                   .srcXInBytes = from.x,
                                   .srcY = from.y,
                                   .srcZ = from.z,
                                   .srcPitch = from.pitch,
                                   .srcHeight = from.height,
                                   .dstMemoryType = to.type,
                                   .dstDevice = to.device,
                                   .dstArray = to.array,
                                   .dstXInBytes = to.x,
                                   .dstY = to.y,
                                   .dstZ = to.z,
                                   .dstPitch = to.pitch,
                                   .dstHeight = to.height,
                                   .WidthInBytes = from_width > to_width ? from_width : to_width,
                                   .Height = list[i].extent.height,
                                   .Depth = list[i].extent.depth};
            status = copy_3d(&plain, handle, COPY_ASYNC);
        }
        if (status != CUDA_SUCCESS) {
            if (failed) {
                *failed = i;
            }
            return status;
        }
    }
    return CUDA_SUCCESS;
}

SIM_BATCH_PAIR(cuMemcpy3DBatchAsync, false,
               (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,
                unsigned long long flags, CUstream hStream),
               ((void)flags, copy_batch_3d(opList, numOps, failIdx, hStream)));
#endif

#if CUDA_VERSION >= 13000
SIM_BATCH_PAIR(cuMemcpyBatchAsync_v2, true,
               (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream),
               ((void)attrs, (void)attrsIdxs, (void)numAttrs,
                copy_batch(dsts, srcs, sizes, count, NULL, hStream)));
SIM_BATCH_PAIR(cuMemcpy3DBatchAsync_v2, true,
               (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags,
                CUstream hStream),
               ((void)flags, copy_batch_3d(opList, numOps, NULL, hStream)));
#endif
