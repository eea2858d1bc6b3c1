/* SPDX-License-Identifier: Apache-2.0 */
/* Memory operations of streams, stream attributes, tensor maps. */
#include "capture.h"
#include "context.h"
#include "entry.h"
#include "memory.h"
#include "stream.h"

#include <string.h>

static CUresult value_operation(CUstream handle, enum sim_work_kind kind, CUdeviceptr address,
                                uint64_t value, unsigned bytes, unsigned flags)
{
    SIM_STREAM(handle, stream);
    if (address % bytes || sim_locate(address).place == SIM_PLACE_NOWHERE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_work work = {
        .kind = kind,
        .value = {.address = address, .value = value, .flags = flags, .bytes = bytes}};
    return sim_submit(stream, &work, NULL);
}

/* The two ABIs of each differ in the features that they require, not in what they do. */
#define SIM_VALUE_FUNCTIONS(suffix)                                                              \
    SIM_STREAM_PAIR(cuStreamWriteValue32##suffix,                                                \
                    (CUstream hStream, CUdeviceptr addr, cuuint32_t value, unsigned int flags),  \
                    value_operation(hStream, SIM_WORK_WRITE_VALUE, addr, value, 4, flags));      \
    SIM_STREAM_PAIR(cuStreamWriteValue64##suffix,                                                \
                    (CUstream hStream, CUdeviceptr addr, cuuint64_t value, unsigned int flags),  \
                    value_operation(hStream, SIM_WORK_WRITE_VALUE, addr, value, 8, flags));      \
    SIM_STREAM_PAIR(cuStreamWaitValue32##suffix,                                                 \
                    (CUstream hStream, CUdeviceptr addr, cuuint32_t value, unsigned int flags),  \
                    value_operation(hStream, SIM_WORK_WAIT_VALUE, addr, value, 4, flags));       \
    SIM_STREAM_PAIR(cuStreamWaitValue64##suffix,                                                 \
                    (CUstream hStream, CUdeviceptr addr, cuuint64_t value, unsigned int flags),  \
                    value_operation(hStream, SIM_WORK_WAIT_VALUE, addr, value, 8, flags));       \
    SIM_STREAM_PAIR(cuStreamBatchMemOp##suffix,                                                  \
                    (CUstream hStream, unsigned int count, CUstreamBatchMemOpParams *paramArray, \
                     unsigned int flags),                                                        \
                    batch(hStream, count, paramArray, flags))

static CUresult one_of_batch(CUstream handle, const CUstreamBatchMemOpParams *p)
{
    switch (p->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        return value_operation(handle, SIM_WORK_WAIT_VALUE, p->waitValue.address,
                               p->waitValue.value, 4, p->waitValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        return value_operation(handle, SIM_WORK_WAIT_VALUE, p->waitValue.address,
                               p->waitValue.value64, 8, p->waitValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        return value_operation(handle, SIM_WORK_WRITE_VALUE, p->writeValue.address,
                               p->writeValue.value, 4, p->writeValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return value_operation(handle, SIM_WORK_WRITE_VALUE, p->writeValue.address,
                               p->writeValue.value64, 8, p->writeValue.flags);
    case CU_STREAM_MEM_OP_BARRIER:
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult batch(CUstream handle, unsigned count, const CUstreamBatchMemOpParams *list,
                      unsigned flags)
{
    if (flags || count > 256 || (count && !list)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && status == CUDA_SUCCESS; i++) {
        status = one_of_batch(handle, &list[i]);
    }
    return status;
}

SIM_VALUE_FUNCTIONS();
SIM_VALUE_FUNCTIONS(_v2);

/* ---- attributes ---------------------------------------------------------------------------------
 */

static CUresult get_attribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue *value)
{
    SIM_STREAM(handle, found);
    if (!value || (unsigned)attribute >= sizeof found->attributes / sizeof found->attributes[0]) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *value = found->attributes[attribute];
    return CUDA_SUCCESS;
}

static CUresult set_attribute(CUstream handle, CUstreamAttrID attribute,
                              const CUstreamAttrValue *value)
{
    SIM_STREAM(handle, found);
    if (!value || (unsigned)attribute >= sizeof found->attributes / sizeof found->attributes[0]) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    found->attributes[attribute] = *value;
    return CUDA_SUCCESS;
}

SIM_STREAM_PAIR(cuStreamGetAttribute,
                (CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value_out),
                get_attribute(hStream, attr, value_out));
SIM_STREAM_PAIR(cuStreamSetAttribute,
                (CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *value),
                set_attribute(hStream, attr, value));

static CUresult copy_attributes(CUstream to, CUstream from)
{
    SIM_STREAM(to, target);
    SIM_STREAM(from, source);
    memcpy(target->attributes, source->attributes, sizeof target->attributes);
    return CUDA_SUCCESS;
}

CUresult cuStreamCopyAttributes(CUstream dst, CUstream src)
{
    SIM_ENTER(cuStreamCopyAttributes);
    return copy_attributes(dst, src);
}

CUresult cuStreamCopyAttributes_ptsz(CUstream dst, CUstream src)
{
    SIM_ENTER(cuStreamCopyAttributes_ptsz);
    return copy_attributes(sim_per_thread(dst), sim_per_thread(src));
}

/* ---- tensor maps: opaque, because no kernel reads them --------------------------------------- */

static CUresult encode(CUtensorMap *map, cuuint32_t rank, const void *address)
{
    if (!map || rank == 0 || rank > 5 || !address) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memset(map, 0, sizeof *map);
    return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
                                cuuint32_t tensorRank, void *globalAddress,
                                const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
                                const cuuint32_t *boxDim, const cuuint32_t *elementStrides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill)
{
    SIM_ENTER(cuTensorMapEncodeTiled);
    return encode(tensorMap, tensorRank, globalAddress);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
                                 cuuint32_t tensorRank, void *globalAddress,
                                 const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
                                 const int *pixelBoxLowerCorner, const int *pixelBoxUpperCorner,
                                 cuuint32_t channelsPerPixel, cuuint32_t pixelsPerColumn,
                                 const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
                                 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
                                 CUtensorMapFloatOOBfill oobFill)
{
    SIM_ENTER(cuTensorMapEncodeIm2col);
    return encode(tensorMap, tensorRank, globalAddress);
}

#if CUDA_VERSION >= 12080
CUresult cuTensorMapEncodeIm2colWide(
    CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
    int pixelBoxLowerCornerWidth, int pixelBoxUpperCornerWidth, cuuint32_t channelsPerPixel,
    cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
    CUtensorMapFloatOOBfill oobFill)
{
    SIM_ENTER(cuTensorMapEncodeIm2colWide);
    return encode(tensorMap, tensorRank, globalAddress);
}
#endif
