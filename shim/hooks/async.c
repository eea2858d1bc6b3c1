/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-ordered allocation. On a capturing stream these calls make graph nodes, which only the
 * driver can do, so they are forwarded. */
#include "shim/device/capture.h"
#include "shim/device/mempools.h"
#include "shim/device/stream.h"
#include "shim/driver/driver.h"
#include "shim/hooks/serve.h"
#include "shim/policy/grant.h"
#include "shim/policy/host_blocks.h"
#include "shim/policy/oom.h"
#include "shim/sites/site.h"

/* One of the four calls, as the application made it. */
struct async_call {
    CUresult (*real)(const struct async_call *call); /* calls the driver */
    CUmemoryPool pool;                               /* null: the device's current pool */
    CUdeviceptr_v2 *dptr;
    size_t bytes;
    CUstream stream;
    bool per_thread;
};

typedef CUresult (*free_function)(CUdeviceptr_v2, CUstream);

/* Whether the request fits, while a piece of the driver's pool does not, and memory of cuMemAlloc
 * serves the program as well: every stream may use that at once, and cuMemFreeAsync frees it. Not
 * where a peer may have access to the pool, or the pool's size is limited, and not during a
 * capture, which may forbid the call. */
static bool fits_apart(const struct async_call *call, const struct ms_mempool *pool,
                       const struct ms_device *device, const struct ms_context *context)
{
    return pool->served && atomic_load(&pool->holder.limit_bytes) == 0 &&
           call->bytes <= ms_budget_free_bytes(&device->budget) &&
           context == ms_context_current() && ms_devices_used() == 1 && !ms_captures_running();
}

/* Allocates from one of the driver's own pools. context: the stream's. */
static CUresult forward(const struct async_call *call, struct ms_mempool *pool,
                        struct ms_device *device, struct ms_context *context)
{
    const uint32_t site = ms_site_capture(call->bytes);
    struct ms_oom_tries tries = {0};
    uint64_t asked_bytes = 0;
    while (!ms_mempool_charge(pool, call->bytes, &asked_bytes)) {
        if (fits_apart(call, pool, device, context)) {
            return ms_forward_alloc(context, MS_CHARGE_ALLOCATION, call->dptr, call->bytes);
        }
        if (ms_oom_refuses(device, call->bytes, asked_bytes, &tries)) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    CUresult result = call->real(call);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && ms_device_make_room(device, ms_options()->wait_ns)) {
        result = call->real(call);
    }
    ms_mempool_correct(pool, asked_bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && fits_apart(call, pool, device, context)) {
        return ms_forward_alloc(context, MS_CHARGE_ALLOCATION, call->dptr, call->bytes);
    }
    if (result == CUDA_SUCCESS && pool->ordinal >= 0) {
        ms_note_outside(device, pool, *call->dptr, call->bytes, site);
    }
    return result == CUDA_ERROR_OUT_OF_MEMORY ? ms_oom_refuse(device, call->bytes) : result;
}

static CUresult alloc(const struct async_call *call)
{
    struct ms_stream_view stream;
    bool captures = false;
    if (!call->dptr || call->bytes == 0) {
        return call->real(call);
    }
    CUresult result = ms_stream_captures(call->stream, call->per_thread, &captures);
    if (captures) {
        return call->real(call);
    }
    if (result == CUDA_SUCCESS) {
        result = ms_stream_resolve(call->stream, call->per_thread, &stream);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct ms_device *device = stream.context->device;
    struct ms_device *home = device;
    struct ms_mempool *pool = NULL;
    result = call->pool ? ms_mempool_of(call->pool, &pool) : ms_mempool_current(device, &pool);
    /* The pool's device decides where the memory lies; the stream only decides when it may be
     * used. */
    if (result == CUDA_SUCCESS && pool->ordinal >= 0 && pool->ordinal != device->ordinal) {
        result = ms_device_use(pool->ordinal, &home);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!home) {
        return call->real(call);
    }
    return pool->served && home->pool
               ? ms_grant_block(home, &pool->holder, stream.id, call->bytes, call->dptr)
               : forward(call, pool, home, stream.context);
}

static CUresult real_alloc(const struct async_call *c)
{
    return MS_REAL(cuMemAllocAsync)(c->dptr, c->bytes, c->stream);
}

CUresult ms_serve_cuMemAllocAsync(CUdeviceptr_v2 *dptr, size_t bytesize, CUstream hStream)
{
    return alloc(&(struct async_call){
        .real = real_alloc, .dptr = dptr, .bytes = bytesize, .stream = hStream});
}

static CUresult real_alloc_per_thread(const struct async_call *c)
{
    return MS_REAL(cuMemAllocAsync_ptsz)(c->dptr, c->bytes, c->stream);
}

CUresult ms_serve_cuMemAllocAsync_ptsz(CUdeviceptr_v2 *dptr, size_t bytesize, CUstream hStream)
{
    return alloc(&(struct async_call){.real = real_alloc_per_thread,
                                      .dptr = dptr,
                                      .bytes = bytesize,
                                      .stream = hStream,
                                      .per_thread = true});
}

static CUresult real_from_pool(const struct async_call *c)
{
    return MS_REAL(cuMemAllocFromPoolAsync)(c->dptr, c->bytes, c->pool, c->stream);
}

CUresult ms_serve_cuMemAllocFromPoolAsync(CUdeviceptr_v2 *dptr, size_t bytesize, CUmemoryPool pool,
                                          CUstream hStream)
{
    if (!pool) {
        return MS_REAL(cuMemAllocFromPoolAsync)(dptr, bytesize, pool, hStream);
    }
    return alloc(&(struct async_call){
        .real = real_from_pool, .pool = pool, .dptr = dptr, .bytes = bytesize, .stream = hStream});
}

static CUresult real_from_pool_per_thread(const struct async_call *c)
{
    return MS_REAL(cuMemAllocFromPoolAsync_ptsz)(c->dptr, c->bytes, c->pool, c->stream);
}

CUresult ms_serve_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr_v2 *dptr, size_t bytesize,
                                               CUmemoryPool pool, CUstream hStream)
{
    if (!pool) {
        return MS_REAL(cuMemAllocFromPoolAsync_ptsz)(dptr, bytesize, pool, hStream);
    }
    return alloc(&(struct async_call){.real = real_from_pool_per_thread,
                                      .pool = pool,
                                      .dptr = dptr,
                                      .bytes = bytesize,
                                      .stream = hStream,
                                      .per_thread = true});
}

/* The driver does not know the pool's memory: it would call the address invalid. But every use of
 * the legacy stream while a blocking stream captures invalidates the capture, so a question does as
 * well as a free. */
static CUresult refuse_legacy(CUstream legacy)
{
    (void)ms_driver()->cuStreamQuery(legacy);
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

static CUresult give_back(CUdeviceptr_v2 dptr, CUstream handle, bool per_thread, free_function real)
{
    struct ms_stream_view stream;
    struct ms_grant grant;
    bool captures = false;
    CUresult result = ms_stream_captures(handle, per_thread, &captures);
    if (captures) {
        return result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT && ms_device_holding(dptr)
                   ? refuse_legacy(ms_stream_plain_handle(handle, per_thread))
                   : real(dptr, handle);
    }
    if (result == CUDA_SUCCESS) {
        result = ms_stream_resolve(handle, per_thread, &stream);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (ms_release_block(stream.context->device, dptr, stream.id)) {
        return CUDA_SUCCESS;
    }
    if (ms_device_holding(dptr)) {
        return CUDA_ERROR_INVALID_VALUE; /* the driver might free one of our chunks */
    }
    if (!ms_ledger_take(MS_SPACE_DEVICE, dptr, &grant)) {
        return real(dptr, handle);
    }
    if (ms_host_block_is(&grant)) {
        return ms_host_block_free_after(&grant, stream.id);
    }
    ms_forwarded_leaves(&grant);
    result = real(dptr, handle);
    ms_forwarded_freed(&grant, result);
    return result;
}

CUresult ms_serve_cuMemFreeAsync(CUdeviceptr_v2 dptr, CUstream hStream)
{
    return give_back(dptr, hStream, false, MS_REAL(cuMemFreeAsync));
}

CUresult ms_serve_cuMemFreeAsync_ptsz(CUdeviceptr_v2 dptr, CUstream hStream)
{
    return give_back(dptr, hStream, true, MS_REAL(cuMemFreeAsync_ptsz));
}
