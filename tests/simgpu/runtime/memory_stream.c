/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-ordered memory: allocation, prefetch, discard. Compiled for both stream flavours. */
#include "runtime.h"

RT_STREAM_API(cudaMallocAsync, _ptsz, (void **pointer, size_t size_bytes, cudaStream_t stream))
{
    return RT_CALL(cuMemAllocAsync, (CUdeviceptr *)pointer, size_bytes, stream);
}

RT_STREAM_API(cudaMallocFromPoolAsync, _ptsz,
              (void **pointer, size_t size_bytes, cudaMemPool_t pool, cudaStream_t stream))
{
    return RT_CALL(cuMemAllocFromPoolAsync, (CUdeviceptr *)pointer, size_bytes, pool, stream);
}

RT_STREAM_API(cudaFreeAsync, _ptsz, (void *pointer, cudaStream_t stream))
{
    return RT_CALL(cuMemFreeAsync, (CUdeviceptr)pointer, stream);
}

RT_STREAM_API(cudaStreamAttachMemAsync, _ptsz,
              (cudaStream_t stream, void *pointer, size_t length, unsigned flags))
{
    return RT_CALL(cuStreamAttachMemAsync, stream, (CUdeviceptr)pointer, length, flags);
}

static cudaError_t prefetch_to(const void *pointer, size_t count, CUmemLocation location,
                               unsigned flags, cudaStream_t stream)
{
    return RT_CALL(cuMemPrefetchAsync, (CUdeviceptr)pointer, count, location, flags, stream);
}

#if RT_ABI == 12
RT_STREAM_API(cudaMemPrefetchAsync, _ptsz,
              (const void *pointer, size_t count, int device, cudaStream_t stream))
{
    return RT_CALL(cuMemPrefetchAsync_device, (CUdeviceptr)pointer, count, device, stream);
}

RT_STREAM_API(cudaMemPrefetchAsync_v2, _ptsz,
              (const void *pointer, size_t count, CUmemLocation location, unsigned flags,
               cudaStream_t stream))
{
    return prefetch_to(pointer, count, location, flags, stream);
}
#else
RT_STREAM_API(cudaMemPrefetchAsync, _ptsz,
              (const void *pointer, size_t count, CUmemLocation location, unsigned flags,
               cudaStream_t stream))
{
    return prefetch_to(pointer, count, location, flags, stream);
}

RT_STREAM_API(cudaMemPrefetchBatchAsync, _ptsz,
              (void **pointers, size_t *sizes, size_t count, CUmemLocation *locations,
               size_t *location_indices, size_t location_count, unsigned long long flags,
               cudaStream_t stream))
{
    return RT_CALL(cuMemPrefetchBatchAsync, (CUdeviceptr *)pointers, sizes, count, locations,
                   location_indices, location_count, flags, stream);
}

RT_STREAM_API(cudaMemDiscardBatchAsync, _ptsz,
              (void **pointers, size_t *sizes, size_t count, unsigned long long flags,
               cudaStream_t stream))
{
    return RT_CALL(cuMemDiscardBatchAsync, (CUdeviceptr *)pointers, sizes, count, flags, stream);
}

RT_STREAM_API(cudaMemDiscardAndPrefetchBatchAsync, _ptsz,
              (void **pointers, size_t *sizes, size_t count, CUmemLocation *locations,
               size_t *location_indices, size_t location_count, unsigned long long flags,
               cudaStream_t stream))
{
    return RT_CALL(cuMemDiscardAndPrefetchBatchAsync, (CUdeviceptr *)pointers, sizes, count,
                   locations, location_indices, location_count, flags, stream);
}
#endif
