/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between devices. Between two of its own allocations on devices without peer access, the
 * driver stages a plain copy; between mapped ones it refuses. A peer copy works in every case. */
#include <string.h>

#include "allocator/base/cancel.h"
#include "shim/device/capture.h"
#include "shim/device/context.h"
#include "shim/device/operations/fences.h"
#include "shim/driver/driver.h"
#include "shim/driver/gate.h"
#include "shim/hooks/detour.h"
#include "shim/hooks/peer.h"
#include "shim/hooks/serve.h"
#include "shim/policy/heat.h"
#include "shim/policy/proxies.h"
#include "shim/policy/sync_memops.h"

/* The contexts that a peer copy names. They stay in use until it has been made. */
struct route {
    struct ms_context *from, *to; /* in use */
    int cancellation;
};

/* The device of memory outside the pools; null for host memory, and for managed memory, which every
 * device can access. */
static struct ms_device *device_of(CUdeviceptr_v2 addr)
{
    CUmemorytype type = 0;
    unsigned int managed = 0;
    int ordinal = -1;
    struct ms_proxy_view page;
    if (ms_proxies_at(addr, &page)) {
        return ms_device_get(page.prop.location.id); /* also while its contents are on the host */
    }
    if (MS_REAL(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, addr) !=
            CUDA_SUCCESS ||
        type != CU_MEMORYTYPE_DEVICE ||
        MS_REAL(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, addr) !=
            CUDA_SUCCESS ||
        managed ||
        MS_REAL(cuPointerGetAttribute)(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, addr) !=
            CUDA_SUCCESS) {
        return NULL;
    }
    return ms_device_get(ordinal);
}

static void note_touched(CUdeviceptr_v2 dst, CUdeviceptr_v2 src)
{
    if (ms_heat_is_on()) {
        ms_heat_touch_each((const uint64_t[]){dst, src}, 2);
    }
}

/* A copy by a function that names no stream. */
static CUresult done(CUresult result, CUdeviceptr_v2 dst, CUdeviceptr_v2 src, bool per_thread)
{
    return ms_sync_memops_are_on()
               ? ms_sync_memops_complete(result, per_thread, (const uint64_t[]){dst, src}, 2)
               : result;
}

/* Calls the driver. If it refused memory of another device than the current one, calls it again by
 * a detour. The detour may wait for a thread that halts the devices, at its end, too. So of it only
 * the driver's calls are counted at the gate. */
#define REACHING(dst, src, stream, call)                                                      \
    __extension__({                                                                           \
        CUresult reached_ = (call);                                                           \
        if (__builtin_expect(reached_ == CUDA_ERROR_INVALID_VALUE, 0)) {                      \
            ms_gate_leave();                                                                  \
            MS_BY_DETOUR(reached_, detours(&detour, (dst), (src), (stream)), MS_GATED(call)); \
            ms_gate_enter();                                                                  \
        }                                                                                     \
        reached_;                                                                             \
    })

static bool detours(struct ms_detour *detour, CUdeviceptr_v2 dst, CUdeviceptr_v2 src,
                    CUstream *stream)
{
    return ms_detour_again(detour, (const uint64_t[]){dst, src}, 2, stream);
}

/* Whether this copy must be a peer copy: at least one side is in a pool, both lie on devices, and
 * these cannot access each other. Notes what the copy touches. */
static bool is_across(CUdeviceptr_v2 dst, CUdeviceptr_v2 src, struct ms_device **to,
                      struct ms_device **from)
{
    note_touched(dst, src);
    if (ms_devices_used() < 2) {
        return false;
    }
    *to = ms_device_holding(dst);
    *from = ms_device_holding(src);
    if (*to == *from) {
        return false;
    }
    *to = *to ? *to : device_of(dst);
    *from = *from ? *from : device_of(src);
    return *to && *from && !ms_peers_meet(*to, *from);
}

/* The same, and finds a route; false if there is none. If true, the copy is made as a peer copy,
 * which leaves the route. */
static bool must_route(CUdeviceptr_v2 dst, CUdeviceptr_v2 src, struct route *route)
{
    struct ms_device *to = NULL;
    struct ms_device *from = NULL;
    if (!is_across(dst, src, &to, &from)) {
        return false;
    }
    route->to = ms_context_any_awaited(to);
    route->from = route->to ? ms_context_any_awaited(from) : NULL;
    if (route->to && !route->from) {
        ms_context_leave(route->to);
    }
    route->cancellation = route->from ? ms_cancel_hold() : 0;
    return route->from != NULL;
}

static CUresult let_go(const struct route *route, CUresult result)
{
    ms_context_leave(route->from);
    ms_context_leave(route->to);
    ms_cancel_let(route->cancellation);
    return result;
}

/* A copy without a stream is not allowed while this thread's or a global capture bars such calls;
 * the driver would let the peer copy through. */
static CUresult permission(void)
{
    struct ms_context *current = ms_captures_running() ? ms_context_current() : NULL;
    return current ? ms_fences_ask_permission(current) : CUDA_SUCCESS;
}

static CUresult peer(CUdeviceptr_v2 dst, CUdeviceptr_v2 src, size_t bytes,
                     const struct route *route, bool per_thread)
{
    const CUresult allowed = permission();
    if (allowed != CUDA_SUCCESS) {
        return let_go(route, allowed);
    }
    return let_go(route, (per_thread ? ms_driver()->cuMemcpyPeer_ptds : ms_driver()->cuMemcpyPeer)(
                             dst, route->to->handle, src, route->from->handle, bytes));
}

static CUresult peer_async(CUdeviceptr_v2 dst, CUdeviceptr_v2 src, size_t bytes,
                           const struct route *route, CUstream stream, bool per_thread)
{
    return let_go(
        route, (per_thread ? ms_driver()->cuMemcpyPeerAsync_ptsz : ms_driver()->cuMemcpyPeerAsync)(
                   dst, route->to->handle, src, route->from->handle, bytes, stream));
}

static CUresult peer_box(const CUDA_MEMCPY3D_PEER_v1 *box, const struct route *route,
                         bool per_thread)
{
    const CUresult allowed = permission();
    if (allowed != CUDA_SUCCESS) {
        return let_go(route, allowed);
    }
    return let_go(
        route, (per_thread ? ms_driver()->cuMemcpy3DPeer_ptds : ms_driver()->cuMemcpy3DPeer)(box));
}

static CUresult peer_box_async(const CUDA_MEMCPY3D_PEER_v1 *box, const struct route *route,
                               CUstream stream, bool per_thread)
{
    return let_go(route, (per_thread ? ms_driver()->cuMemcpy3DPeerAsync_ptsz
                                     : ms_driver()->cuMemcpy3DPeerAsync)(box, stream));
}

/* --- linear ----------------------------------------------------------------------------------- */

CUresult ms_serve_cuMemcpy(CUdeviceptr_v2 dst, CUdeviceptr_v2 src, size_t ByteCount)
{
    struct route route;
    return done(must_route(dst, src, &route)
                    ? peer(dst, src, ByteCount, &route, false)
                    : REACHING(dst, src, NULL, MS_REAL(cuMemcpy)(dst, src, ByteCount)),
                dst, src, false);
}

CUresult ms_serve_cuMemcpy_ptds(CUdeviceptr_v2 dst, CUdeviceptr_v2 src, size_t ByteCount)
{
    struct route route;
    return done(must_route(dst, src, &route)
                    ? peer(dst, src, ByteCount, &route, true)
                    : REACHING(dst, src, NULL, MS_REAL(cuMemcpy_ptds)(dst, src, ByteCount)),
                dst, src, true);
}

CUresult ms_serve_cuMemcpyAsync(CUdeviceptr_v2 dst, CUdeviceptr_v2 src, size_t ByteCount,
                                CUstream hStream)
{
    struct route route;
    return must_route(dst, src, &route)
               ? peer_async(dst, src, ByteCount, &route, hStream, false)
               : REACHING(dst, src, &hStream, MS_REAL(cuMemcpyAsync)(dst, src, ByteCount, hStream));
}

CUresult ms_serve_cuMemcpyAsync_ptsz(CUdeviceptr_v2 dst, CUdeviceptr_v2 src, size_t ByteCount,
                                     CUstream hStream)
{
    struct route route;
    return must_route(dst, src, &route)
               ? peer_async(dst, src, ByteCount, &route, hStream, true)
               : REACHING(dst, src, &hStream,
                          MS_REAL(cuMemcpyAsync_ptsz)(dst, src, ByteCount, hStream));
}

CUresult ms_serve_cuMemcpyDtoD_v2(CUdeviceptr_v2 dstDevice, CUdeviceptr_v2 srcDevice,
                                  size_t ByteCount)
{
    struct route route;
    return done(must_route(dstDevice, srcDevice, &route)
                    ? peer(dstDevice, srcDevice, ByteCount, &route, false)
                    : REACHING(dstDevice, srcDevice, NULL,
                               MS_REAL(cuMemcpyDtoD_v2)(dstDevice, srcDevice, ByteCount)),
                dstDevice, srcDevice, false);
}

CUresult ms_serve_cuMemcpyDtoD_v2_ptds(CUdeviceptr_v2 dstDevice, CUdeviceptr_v2 srcDevice,
                                       size_t ByteCount)
{
    struct route route;
    return done(must_route(dstDevice, srcDevice, &route)
                    ? peer(dstDevice, srcDevice, ByteCount, &route, true)
                    : REACHING(dstDevice, srcDevice, NULL,
                               MS_REAL(cuMemcpyDtoD_v2_ptds)(dstDevice, srcDevice, ByteCount)),
                dstDevice, srcDevice, true);
}

CUresult ms_serve_cuMemcpyDtoDAsync_v2(CUdeviceptr_v2 dstDevice, CUdeviceptr_v2 srcDevice,
                                       size_t ByteCount, CUstream hStream)
{
    struct route route;
    return must_route(dstDevice, srcDevice, &route)
               ? peer_async(dstDevice, srcDevice, ByteCount, &route, hStream, false)
               : REACHING(dstDevice, srcDevice, &hStream,
                          MS_REAL(cuMemcpyDtoDAsync_v2)(dstDevice, srcDevice, ByteCount, hStream));
}

CUresult ms_serve_cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr_v2 dstDevice, CUdeviceptr_v2 srcDevice,
                                            size_t ByteCount, CUstream hStream)
{
    struct route route;
    return must_route(dstDevice, srcDevice, &route)
               ? peer_async(dstDevice, srcDevice, ByteCount, &route, hStream, true)
               : REACHING(
                     dstDevice, srcDevice, &hStream,
                     MS_REAL(cuMemcpyDtoDAsync_v2_ptsz)(dstDevice, srcDevice, ByteCount, hStream));
}

CUresult ms_serve_cuMemcpyWithAttributesAsync(CUdeviceptr_v2 dst, CUdeviceptr_v2 src, size_t size,
                                              CUmemcpyAttributes_v1 *attr, CUstream hStream)
{
    struct route route;
    return must_route(dst, src, &route)
               ? peer_async(dst, src, size, &route, hStream, false)
               : REACHING(dst, src, &hStream,
                          MS_REAL(cuMemcpyWithAttributesAsync)(dst, src, size, attr, hStream));
}

CUresult ms_serve_cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr_v2 dst, CUdeviceptr_v2 src,
                                                   size_t size, CUmemcpyAttributes_v1 *attr,
                                                   CUstream hStream)
{
    struct route route;
    return must_route(dst, src, &route)
               ? peer_async(dst, src, size, &route, hStream, true)
               : REACHING(dst, src, &hStream,
                          MS_REAL(cuMemcpyWithAttributesAsync_ptsz)(dst, src, size, attr, hStream));
}

/* --- rows and boxes --------------------------------------------------------------------------- */

static bool is_linear(CUmemorytype type)
{
    return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
}

/* 0 if that end is not linear device memory. */
static CUdeviceptr_v2 linear(CUmemorytype type, CUdeviceptr_v2 addr)
{
    return is_linear(type) ? addr : 0;
}

static CUdeviceptr_v2 row_dst(const CUDA_MEMCPY2D_v2 *copy)
{
    return copy ? linear(copy->dstMemoryType, copy->dstDevice) : 0;
}

static CUdeviceptr_v2 row_src(const CUDA_MEMCPY2D_v2 *copy)
{
    return copy ? linear(copy->srcMemoryType, copy->srcDevice) : 0;
}

static CUdeviceptr_v2 box_dst(const CUDA_MEMCPY3D_v2 *copy)
{
    return copy ? linear(copy->dstMemoryType, copy->dstDevice) : 0;
}

static CUdeviceptr_v2 box_src(const CUDA_MEMCPY3D_v2 *copy)
{
    return copy ? linear(copy->srcMemoryType, copy->srcDevice) : 0;
}

static CUresult done_rows(CUresult result, const CUDA_MEMCPY2D_v2 *copy, bool per_thread)
{
    return done(result, row_dst(copy), row_src(copy), per_thread);
}

static CUresult done_box(CUresult result, const CUDA_MEMCPY3D_v2 *copy, bool per_thread)
{
    return done(result, box_dst(copy), box_src(copy), per_thread);
}

/* Describes the same copy between contexts (cuda.h, CUDA_MEMCPY3D_PEER). False: the plain copy will
 * do. */
static bool box_of_rows(const CUDA_MEMCPY2D_v2 *copy, CUDA_MEMCPY3D_PEER_v1 *box,
                        struct route *route)
{
    if (copy && ms_heat_is_on()) {
        note_touched(row_dst(copy), row_src(copy));
    }
    if (!copy || copy->WidthInBytes == 0 || copy->Height == 0 || !is_linear(copy->srcMemoryType) ||
        !is_linear(copy->dstMemoryType) || !must_route(copy->dstDevice, copy->srcDevice, route)) {
        return false;
    }
    memset(box, 0, sizeof *box);
    box->srcXInBytes = copy->srcXInBytes;
    box->srcY = copy->srcY;
    box->srcMemoryType = CU_MEMORYTYPE_DEVICE;
    box->srcDevice = copy->srcDevice;
    box->srcContext = route->from->handle;
    box->srcPitch = copy->srcPitch ? copy->srcPitch : copy->srcXInBytes + copy->WidthInBytes;
    box->srcHeight = copy->srcY + copy->Height;
    box->dstXInBytes = copy->dstXInBytes;
    box->dstY = copy->dstY;
    box->dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box->dstDevice = copy->dstDevice;
    box->dstContext = route->to->handle;
    box->dstPitch = copy->dstPitch ? copy->dstPitch : copy->dstXInBytes + copy->WidthInBytes;
    box->dstHeight = copy->dstY + copy->Height;
    box->WidthInBytes = copy->WidthInBytes;
    box->Height = copy->Height;
    box->Depth = 1;
    return true;
}

static bool box_of_box(const CUDA_MEMCPY3D_v2 *copy, CUDA_MEMCPY3D_PEER_v1 *box,
                       struct route *route)
{
    if (copy && ms_heat_is_on()) {
        note_touched(box_dst(copy), box_src(copy));
    }
    if (!copy || copy->WidthInBytes == 0 || copy->Height == 0 || copy->Depth == 0 ||
        !is_linear(copy->srcMemoryType) || !is_linear(copy->dstMemoryType) ||
        !must_route(copy->dstDevice, copy->srcDevice, route)) {
        return false;
    }
    memset(box, 0, sizeof *box);
    box->srcXInBytes = copy->srcXInBytes;
    box->srcY = copy->srcY;
    box->srcZ = copy->srcZ;
    box->srcMemoryType = CU_MEMORYTYPE_DEVICE;
    box->srcDevice = copy->srcDevice;
    box->srcContext = route->from->handle;
    box->srcPitch = copy->srcPitch;
    box->srcHeight = copy->srcHeight;
    box->dstXInBytes = copy->dstXInBytes;
    box->dstY = copy->dstY;
    box->dstZ = copy->dstZ;
    box->dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box->dstDevice = copy->dstDevice;
    box->dstContext = route->to->handle;
    box->dstPitch = copy->dstPitch;
    box->dstHeight = copy->dstHeight;
    box->WidthInBytes = copy->WidthInBytes;
    box->Height = copy->Height;
    box->Depth = copy->Depth;
    return true;
}

CUresult ms_serve_cuMemcpy2D_v2(const CUDA_MEMCPY2D_v2 *pCopy)
{
    CUDA_MEMCPY3D_PEER_v1 box;
    struct route route;
    return done_rows(
        box_of_rows(pCopy, &box, &route)
            ? peer_box(&box, &route, false)
            : REACHING(row_dst(pCopy), row_src(pCopy), NULL, MS_REAL(cuMemcpy2D_v2)(pCopy)),
        pCopy, false);
}

CUresult ms_serve_cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D_v2 *pCopy)
{
    CUDA_MEMCPY3D_PEER_v1 box;
    struct route route;
    return done_rows(
        box_of_rows(pCopy, &box, &route)
            ? peer_box(&box, &route, true)
            : REACHING(row_dst(pCopy), row_src(pCopy), NULL, MS_REAL(cuMemcpy2D_v2_ptds)(pCopy)),
        pCopy, true);
}

CUresult ms_serve_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D_v2 *pCopy)
{
    CUDA_MEMCPY3D_PEER_v1 box;
    struct route route;
    return done_rows(box_of_rows(pCopy, &box, &route)
                         ? peer_box(&box, &route, false)
                         : REACHING(row_dst(pCopy), row_src(pCopy), NULL,
                                    MS_REAL(cuMemcpy2DUnaligned_v2)(pCopy)),
                     pCopy, false);
}

CUresult ms_serve_cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D_v2 *pCopy)
{
    CUDA_MEMCPY3D_PEER_v1 box;
    struct route route;
    return done_rows(box_of_rows(pCopy, &box, &route)
                         ? peer_box(&box, &route, true)
                         : REACHING(row_dst(pCopy), row_src(pCopy), NULL,
                                    MS_REAL(cuMemcpy2DUnaligned_v2_ptds)(pCopy)),
                     pCopy, true);
}

CUresult ms_serve_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D_v2 *pCopy, CUstream hStream)
{
    CUDA_MEMCPY3D_PEER_v1 box;
    struct route route;
    return box_of_rows(pCopy, &box, &route) ? peer_box_async(&box, &route, hStream, false)
                                            : REACHING(row_dst(pCopy), row_src(pCopy), &hStream,
                                                       MS_REAL(cuMemcpy2DAsync_v2)(pCopy, hStream));
}

CUresult ms_serve_cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D_v2 *pCopy, CUstream hStream)
{
    CUDA_MEMCPY3D_PEER_v1 box;
    struct route route;
    return box_of_rows(pCopy, &box, &route)
               ? peer_box_async(&box, &route, hStream, true)
               : REACHING(row_dst(pCopy), row_src(pCopy), &hStream,
                          MS_REAL(cuMemcpy2DAsync_v2_ptsz)(pCopy, hStream));
}

CUresult ms_serve_cuMemcpy3D_v2(const CUDA_MEMCPY3D_v2 *pCopy)
{
    CUDA_MEMCPY3D_PEER_v1 box;
    struct route route;
    return done_box(box_of_box(pCopy, &box, &route) ? peer_box(&box, &route, false)
                                                    : REACHING(box_dst(pCopy), box_src(pCopy), NULL,
                                                               MS_REAL(cuMemcpy3D_v2)(pCopy)),
                    pCopy, false);
}

CUresult ms_serve_cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D_v2 *pCopy)
{
    CUDA_MEMCPY3D_PEER_v1 box;
    struct route route;
    return done_box(box_of_box(pCopy, &box, &route) ? peer_box(&box, &route, true)
                                                    : REACHING(box_dst(pCopy), box_src(pCopy), NULL,
                                                               MS_REAL(cuMemcpy3D_v2_ptds)(pCopy)),
                    pCopy, true);
}

CUresult ms_serve_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D_v2 *pCopy, CUstream hStream)
{
    CUDA_MEMCPY3D_PEER_v1 box;
    struct route route;
    return box_of_box(pCopy, &box, &route) ? peer_box_async(&box, &route, hStream, false)
                                           : REACHING(box_dst(pCopy), box_src(pCopy), &hStream,
                                                      MS_REAL(cuMemcpy3DAsync_v2)(pCopy, hStream));
}

CUresult ms_serve_cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D_v2 *pCopy, CUstream hStream)
{
    CUDA_MEMCPY3D_PEER_v1 box;
    struct route route;
    return box_of_box(pCopy, &box, &route)
               ? peer_box_async(&box, &route, hStream, true)
               : REACHING(box_dst(pCopy), box_src(pCopy), &hStream,
                          MS_REAL(cuMemcpy3DAsync_v2_ptsz)(pCopy, hStream));
}

/* Between contexts that the program names. */
static CUresult peer_box_done(CUresult result, const CUDA_MEMCPY3D_PEER_v1 *copy, bool per_thread)
{
    if (!copy) {
        return result;
    }
    const CUdeviceptr_v2 dst = linear(copy->dstMemoryType, copy->dstDevice);
    const CUdeviceptr_v2 src = linear(copy->srcMemoryType, copy->srcDevice);
    note_touched(dst, src);
    return done(result, dst, src, per_thread);
}

CUresult ms_serve_cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER_v1 *pCopy)
{
    return peer_box_done(MS_REAL(cuMemcpy3DPeer)(pCopy), pCopy, false);
}

CUresult ms_serve_cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER_v1 *pCopy)
{
    return peer_box_done(MS_REAL(cuMemcpy3DPeer_ptds)(pCopy), pCopy, true);
}

/* --- batches ---------------------------------------------------------------------------------- */

/* The index of the first copy in the batch that must be a peer copy; count if none must. Notes what
 * all of them touch. */
static size_t first_routed(const CUdeviceptr_v2 *dsts, const CUdeviceptr_v2 *srcs, size_t count)
{
    struct ms_device *to = NULL;
    struct ms_device *from = NULL;
    for (size_t i = 0; ms_heat_is_on() && dsts && srcs && i < count; i++) {
        note_touched(dsts[i], srcs[i]);
    }
    size_t i = ms_devices_used() > 1 && dsts && srcs ? 0 : count;
    while (i < count && !is_across(dsts[i], srcs[i], &to, &from)) {
        i++;
    }
    return i;
}

/* Makes the copies one by one, which is one of the orders allowed for a batch (cuda.h,
 * cuMemcpyBatchAsync). */
static CUresult one_by_one(const CUdeviceptr_v2 *dsts, const CUdeviceptr_v2 *srcs,
                           const size_t *sizes, size_t count, size_t *fail_index, CUstream stream,
                           bool per_thread)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        struct route route;
        if (must_route(dsts[i], srcs[i], &route)) {
            result = peer_async(dsts[i], srcs[i], sizes[i], &route, stream, per_thread);
        } else {
            result = (per_thread ? MS_REAL(cuMemcpyAsync_ptsz)
                                 : MS_REAL(cuMemcpyAsync))(dsts[i], srcs[i], sizes[i], stream);
        }
        if (result != CUDA_SUCCESS && fail_index) {
            *fail_index = i;
        }
    }
    return result;
}

CUresult ms_serve_cuMemcpyBatchAsync(CUdeviceptr_v2 *dsts, CUdeviceptr_v2 *srcs, size_t *sizes,
                                     size_t count, CUmemcpyAttributes_v1 *attrs, size_t *attrIdxs,
                                     size_t numAttrs, size_t *failIdx, CUstream hStream)
{
    if (sizes && first_routed(dsts, srcs, count) < count) {
        return one_by_one(dsts, srcs, sizes, count, failIdx, hStream, false);
    }
    return MS_REAL(cuMemcpyBatchAsync)(dsts, srcs, sizes, count, attrs, attrIdxs, numAttrs, failIdx,
                                       hStream);
}

CUresult ms_serve_cuMemcpyBatchAsync_ptsz(CUdeviceptr_v2 *dsts, CUdeviceptr_v2 *srcs, size_t *sizes,
                                          size_t count, CUmemcpyAttributes_v1 *attrs,
                                          size_t *attrIdxs, size_t numAttrs, size_t *failIdx,
                                          CUstream hStream)
{
    if (sizes && first_routed(dsts, srcs, count) < count) {
        return one_by_one(dsts, srcs, sizes, count, failIdx, hStream, true);
    }
    return MS_REAL(cuMemcpyBatchAsync_ptsz)(dsts, srcs, sizes, count, attrs, attrIdxs, numAttrs,
                                            failIdx, hStream);
}

CUresult ms_serve_cuMemcpyBatchAsync_v2(CUdeviceptr_v2 *dsts, CUdeviceptr_v2 *srcs, size_t *sizes,
                                        size_t count, CUmemcpyAttributes_v1 *attrs,
                                        size_t *attrIdxs, size_t numAttrs, CUstream hStream)
{
    if (sizes && first_routed(dsts, srcs, count) < count) {
        return one_by_one(dsts, srcs, sizes, count, NULL, hStream, false);
    }
    return MS_REAL(cuMemcpyBatchAsync_v2)(dsts, srcs, sizes, count, attrs, attrIdxs, numAttrs,
                                          hStream);
}

CUresult ms_serve_cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr_v2 *dsts, CUdeviceptr_v2 *srcs,
                                             size_t *sizes, size_t count,
                                             CUmemcpyAttributes_v1 *attrs, size_t *attrIdxs,
                                             size_t numAttrs, CUstream hStream)
{
    if (sizes && first_routed(dsts, srcs, count) < count) {
        return one_by_one(dsts, srcs, sizes, count, NULL, hStream, true);
    }
    return MS_REAL(cuMemcpyBatchAsync_v2_ptsz)(dsts, srcs, sizes, count, attrs, attrIdxs, numAttrs,
                                               hStream);
}
