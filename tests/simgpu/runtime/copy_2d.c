/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two-dimensional copies, arrays among them. Compiled for both stream flavours.
 */
#include "runtime.h"

/* One side of a two-dimensional copy. */
struct side {
    const void *pointer; /* of linear memory, or */
    CUarray array;       /* of an array */
    size_t pitch_bytes, x_bytes, y;
};

static CUmemorytype memory_type(const struct side *side, enum cudaMemcpyKind kind, int is_host)
{
    if (side->array) {
        return CU_MEMORYTYPE_ARRAY;
    }
    if (kind == cudaMemcpyDefault) {
        return CU_MEMORYTYPE_UNIFIED;
    }
    return is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

static cudaError_t copy_2d(const struct side *to, const struct side *from, size_t width_bytes,
                           size_t height, enum cudaMemcpyKind kind, const cudaStream_t *stream)
{
    const struct rt_driver *driver = NULL;
    cudaError_t error = rt_enter(RT_FLAVOUR, &driver);
    if (error != cudaSuccess) {
        return error;
    }
    if (!rt_kind_is_valid(kind)) {
        return cudaErrorInvalidMemcpyDirection;
    }
    if ((!to->array && height > 1 && to->pitch_bytes < width_bytes) ||
        (!from->array && height > 1 && from->pitch_bytes < width_bytes)) {
        return cudaErrorInvalidPitchValue;
    }
    if (width_bytes == 0 || height == 0) {
        return cudaSuccess;
    }
    CUDA_MEMCPY2D copy = {
        .srcXInBytes = from->x_bytes,
        .srcY = from->y,
        .srcMemoryType = memory_type(from, kind, rt_kind_is_from_host(kind)),
        .srcHost = from->pointer,
        .srcDevice = (CUdeviceptr)from->pointer,
        .srcArray = from->array,
        .srcPitch = from->pitch_bytes,
        .dstXInBytes = to->x_bytes,
        .dstY = to->y,
        .dstMemoryType = memory_type(to, kind, rt_kind_is_to_host(kind)),
        .dstHost = (void *)(uintptr_t)to->pointer,
        .dstDevice = (CUdeviceptr)to->pointer,
        .dstArray = to->array,
        .dstPitch = to->pitch_bytes,
        .WidthInBytes = width_bytes,
        .Height = height,
    };
    return stream ? RT_TRY(driver, cuMemcpy2DAsync, &copy, *stream)
                  : RT_TRY(driver, cuMemcpy2DUnaligned, &copy);
}

#define LINEAR(base, pitch) (&(struct side){.pointer = (base), .pitch_bytes = (pitch)})
#define IN_ARRAY(handle, x, row) \
    (&(struct side){.array = (CUarray)(handle), .x_bytes = (x), .y = (row)})

RT_STREAM_API(cudaMemcpy2D, _ptds,
              (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
               size_t height, enum cudaMemcpyKind kind))
{
    return rt_note(
        copy_2d(LINEAR(to, to_pitch), LINEAR(from, from_pitch), width, height, kind, NULL));
}

RT_STREAM_API(cudaMemcpy2DAsync, _ptsz,
              (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
               size_t height, enum cudaMemcpyKind kind, cudaStream_t stream))
{
    return rt_note(
        copy_2d(LINEAR(to, to_pitch), LINEAR(from, from_pitch), width, height, kind, &stream));
}

RT_STREAM_API(cudaMemcpy2DToArray, _ptds,
              (cudaArray_t to, size_t x, size_t y, const void *from, size_t pitch, size_t width,
               size_t height, enum cudaMemcpyKind kind))
{
    return rt_note(copy_2d(IN_ARRAY(to, x, y), LINEAR(from, pitch), width, height, kind, NULL));
}

RT_STREAM_API(cudaMemcpy2DToArrayAsync, _ptsz,
              (cudaArray_t to, size_t x, size_t y, const void *from, size_t pitch, size_t width,
               size_t height, enum cudaMemcpyKind kind, cudaStream_t stream))
{
    return rt_note(copy_2d(IN_ARRAY(to, x, y), LINEAR(from, pitch), width, height, kind, &stream));
}

RT_STREAM_API(cudaMemcpy2DFromArray, _ptds,
              (void *to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width,
               size_t height, enum cudaMemcpyKind kind))
{
    return rt_note(copy_2d(LINEAR(to, pitch), IN_ARRAY(from, x, y), width, height, kind, NULL));
}

RT_STREAM_API(cudaMemcpy2DFromArrayAsync, _ptsz,
              (void *to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width,
               size_t height, enum cudaMemcpyKind kind, cudaStream_t stream))
{
    return rt_note(copy_2d(LINEAR(to, pitch), IN_ARRAY(from, x, y), width, height, kind, &stream));
}

RT_STREAM_API(cudaMemcpy2DArrayToArray, _ptds,
              (cudaArray_t to, size_t to_x, size_t to_y, cudaArray_const_t from, size_t from_x,
               size_t from_y, size_t width, size_t height, enum cudaMemcpyKind kind))
{
    return rt_note(copy_2d(IN_ARRAY(to, to_x, to_y), IN_ARRAY(from, from_x, from_y), width, height,
                           kind, NULL));
}

/* A run of bytes through an array, row after row (cudaMemcpyToArray and its kin): the rest of the
 * first row, then whole rows, then the beginning of the last. */
static cudaError_t copy_run(struct side *array, struct side *linear, int into_array, size_t count,
                            enum cudaMemcpyKind kind, const cudaStream_t *stream)
{
    const struct rt_driver *driver = NULL;
    CUDA_ARRAY3D_DESCRIPTOR full;
    cudaError_t error = rt_enter(RT_FLAVOUR, &driver);
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuArray3DGetDescriptor, &full, array->array);
    }
    if (error != cudaSuccess) {
        return error;
    }
    struct cudaChannelFormatDesc desc = rt_channel_desc(full.Format, full.NumChannels);
    size_t row_bytes = full.Width * (size_t)(desc.x + desc.y + desc.z + desc.w) / 8;
    if (array->x_bytes >= row_bytes) {
        return cudaErrorInvalidValue;
    }
    while (count > 0 && error == cudaSuccess) {
        size_t room = row_bytes - array->x_bytes;
        size_t width = count < room ? count : room;
        size_t rows = array->x_bytes == 0 && count >= row_bytes ? count / row_bytes : 1;
        linear->pitch_bytes = width;
        error = into_array ? copy_2d(array, linear, width, rows, kind, stream)
                           : copy_2d(linear, array, width, rows, kind, stream);
        linear->pointer = (const char *)linear->pointer + width * rows;
        array->x_bytes = 0;
        array->y += rows;
        count -= width * rows;
    }
    return error;
}

RT_STREAM_API(cudaMemcpyToArray, _ptds,
              (cudaArray_t to, size_t x, size_t y, const void *from, size_t count,
               enum cudaMemcpyKind kind))
{
    return rt_note(copy_run(IN_ARRAY(to, x, y), LINEAR(from, 0), 1, count, kind, NULL));
}

RT_STREAM_API(cudaMemcpyToArrayAsync, _ptsz,
              (cudaArray_t to, size_t x, size_t y, const void *from, size_t count,
               enum cudaMemcpyKind kind, cudaStream_t stream))
{
    return rt_note(copy_run(IN_ARRAY(to, x, y), LINEAR(from, 0), 1, count, kind, &stream));
}

RT_STREAM_API(cudaMemcpyFromArray, _ptds,
              (void *to, cudaArray_const_t from, size_t x, size_t y, size_t count,
               enum cudaMemcpyKind kind))
{
    return rt_note(copy_run(IN_ARRAY(from, x, y), LINEAR(to, 0), 0, count, kind, NULL));
}

RT_STREAM_API(cudaMemcpyFromArrayAsync, _ptsz,
              (void *to, cudaArray_const_t from, size_t x, size_t y, size_t count,
               enum cudaMemcpyKind kind, cudaStream_t stream))
{
    return rt_note(copy_run(IN_ARRAY(from, x, y), LINEAR(to, 0), 0, count, kind, &stream));
}
