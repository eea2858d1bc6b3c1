/* Stream-ordered allocation. On a stream that captures these calls make graph nodes, which only the
 * driver can do: they are forwarded. */
#include "shim/serve/mempool.h"
#include "shim/serve/oom.h"
#include "shim/serve/release.h"
#include "shim/serve/stream.h"

typedef CUresult (*alloc_function)(CUdeviceptr_v2 *, size_t, CUstream);
typedef CUresult (*alloc_from_function)(CUdeviceptr_v2 *, size_t, CUmemoryPool, CUstream);
typedef CUresult (*free_function)(CUdeviceptr_v2, CUstream);

/* One of the two calls, in one of its flavours, as the application made it. */
struct call {
    alloc_function alloc;           /* or */
    alloc_from_function alloc_from; /* with the pool below */
    CUmemoryPool pool;
    CUdeviceptr_v2 *dptr;
    size_t bytes;
    CUstream stream;
    bool per_thread;
};

static CUresult ask_driver(const struct call *call)
{
    return call->alloc ? call->alloc(call->dptr, call->bytes, call->stream)
                       : call->alloc_from(call->dptr, call->bytes, call->pool, call->stream);
}

static CUresult serve(const struct call *call, struct ms_mempool *pool, struct ms_device *home,
                      ms_stream_t stream)
{
    if (!ms_mempool_granted(pool, call->bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = ms_grant_block(home, MS_GRANT_ASYNC, pool, stream, call->bytes, call->dptr);
    if (result != CUDA_SUCCESS) {
        ms_mempool_returned(pool, call->bytes);
    }
    return result;
}

/* From a pool of the driver's own. */
static CUresult forward(const struct call *call, struct ms_mempool *pool, struct ms_device *device)
{
    uint64_t asked_bytes = 0;
    if (!ms_mempool_charge(pool, call->bytes, &asked_bytes)) {
        return ms_oom_refuse(device, call->bytes);
    }
    CUresult result = ask_driver(call);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && ms_device_make_room(device, ms_options()->wait_ns)) {
        result = ask_driver(call);
    }
    ms_mempool_correct(pool, asked_bytes);
    if (result == CUDA_SUCCESS) {
        ms_note_outside(device, pool, *call->dptr, call->bytes);
    }
    return result == CUDA_ERROR_OUT_OF_MEMORY ? ms_oom_refuse(device, call->bytes) : result;
}

static CUresult alloc(const struct call *call)
{
    struct ms_stream_view stream;
    if (!call->dptr || call->bytes == 0 || ms_stream_captures(call->stream, call->per_thread) ||
        ms_stream_resolve(call->stream, call->per_thread, &stream) != CUDA_SUCCESS) {
        return ask_driver(call);
    }
    struct ms_device *device = stream.context->device;
    struct ms_mempool *pool = call->alloc ? ms_mempool_current(device) : ms_mempool_of(call->pool);
    if (!pool) {
        return ask_driver(call);
    }
    /* The pool's device decides where the memory lies, the stream only when it may be used. */
    struct ms_device *home = pool->ordinal < 0 ? device : ms_device_use(pool->ordinal);
    if (!home) {
        return ask_driver(call);
    }
    return pool->served && home->pool ? serve(call, pool, home, stream.id)
                                      : forward(call, pool, home);
}

CUresult ms_serve_cuMemAllocAsync(CUdeviceptr_v2 *dptr, size_t bytesize, CUstream hStream)
{
    return alloc(&(struct call){
        .alloc = MS_REAL(cuMemAllocAsync), .dptr = dptr, .bytes = bytesize, .stream = hStream});
}

CUresult ms_serve_cuMemAllocAsync_ptsz(CUdeviceptr_v2 *dptr, size_t bytesize, CUstream hStream)
{
    return alloc(&(struct call){.alloc = MS_REAL(cuMemAllocAsync_ptsz),
                                .dptr = dptr,
                                .bytes = bytesize,
                                .stream = hStream,
                                .per_thread = true});
}

CUresult ms_serve_cuMemAllocFromPoolAsync(CUdeviceptr_v2 *dptr, size_t bytesize, CUmemoryPool pool,
                                          CUstream hStream)
{
    return alloc(&(struct call){.alloc_from = MS_REAL(cuMemAllocFromPoolAsync),
                                .pool = pool,
                                .dptr = dptr,
                                .bytes = bytesize,
                                .stream = hStream});
}

CUresult ms_serve_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr_v2 *dptr, size_t bytesize,
                                               CUmemoryPool pool, CUstream hStream)
{
    return alloc(&(struct call){.alloc_from = MS_REAL(cuMemAllocFromPoolAsync_ptsz),
                                .pool = pool,
                                .dptr = dptr,
                                .bytes = bytesize,
                                .stream = hStream,
                                .per_thread = true});
}

static CUresult give_back(CUdeviceptr_v2 dptr, CUstream handle, bool per_thread, free_function real)
{
    struct ms_stream_view stream;
    struct ms_grant grant;
    if (ms_stream_captures(handle, per_thread)) {
        return real(dptr, handle);
    }
    CUresult result = ms_stream_resolve(handle, per_thread, &stream);
    if (result != CUDA_SUCCESS || !ms_ledger_take(MS_SPACE_DEVICE, dptr, &grant)) {
        return real(dptr, handle);
    }
    if (grant.kind == MS_GRANT_BLOCK || grant.kind == MS_GRANT_ASYNC) {
        ms_mempool_released(&grant);
        return ms_release_block(&grant, stream.id);
    }
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
