/* SPDX-License-Identifier: Apache-2.0 */
/* Scenarios of serve_job about what is asked of an address, and what leaves the process or the
 * device. */
#define MEMSHIM_WEAK
#include "serve_job.h"
#include "shim/memshim.h"

void identity(void)
{
    CUdeviceptr at;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUipcMemHandle handle;
    CUcontext owner = NULL;
    int capable = 0;
    unsigned long long one_id = 0;
    unsigned long long other_id = 0;
    CUdeviceptr other;
    MUST(cuMemAlloc(&at, 3 * MIB + 1));
    MUST(cuMemAlloc(&other, 4 * MIB));
    MUST(cuMemGetAddressRange(&base, &bytes, at + 2 * MIB));
    EXPECT(base == at && bytes == 3 * MIB + 1);
    MUST(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, other + 1));
    MUST(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, other + 1));
    EXPECT(base == other && bytes == 4 * MIB);
    MUST(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at));
    EXPECT(capable);
    MUST(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, at));
    EXPECT(owner == context);
    MUST(cuPointerGetAttribute(&one_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, at));
    MUST(cuPointerGetAttribute(&other_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, other));
    EXPECT(one_id != other_id);
    MUST(cuIpcGetMemHandle(&handle, at));
    MUST(cuMemFree(at));
    EXPECT(cuIpcGetMemHandle(&handle, at) == CUDA_ERROR_INVALID_VALUE);
    MUST(cuMemFree(other));
    EXPECT(cuMemFree(at) == CUDA_ERROR_INVALID_VALUE);
}

/* A block was not mapped by the program. So the calls for mapped memory refuse it, as they refuse
 * the driver's own memory, and its contents stay. */
void not_mapped(void)
{
    enum { BLOCKS = 12 };
    CUdeviceptr blocks[BLOCKS];
    CUmemAllocationProp prop = chunk_properties();
    CUmemGenericAllocationHandle chunk;
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
    MUST(cuMemCreate(&chunk, 2 * MIB, &prop, 0));
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemAlloc(&blocks[i], (i + 1) * MIB));
        MUST(cuMemsetD8(blocks[i], 1, (i + 1) * MIB));
    }
    for (int i = 0; i < BLOCKS; i++) {
        CUdeviceptr granule = blocks[i] / (2 * MIB) * (2 * MIB);
        EXPECT(cuMemSetAccess(granule, 2 * MIB, &access, 1) == CUDA_ERROR_INVALID_VALUE);
        EXPECT(cuMemMap(granule, 2 * MIB, 0, chunk, 0) == CUDA_ERROR_INVALID_VALUE);
        for (size_t bytes = 2 * MIB; bytes <= 16 * MIB; bytes += 2 * MIB) {
            EXPECT(cuMemUnmap(granule, bytes) == CUDA_ERROR_INVALID_VALUE);
            EXPECT(cuMemAddressFree(granule, bytes) == CUDA_ERROR_INVALID_VALUE);
        }
        EXPECT(cuMemHostRegister((void *)(uintptr_t)blocks[i], MIB, 0) != CUDA_SUCCESS);
    }
    for (int i = 0; i < BLOCKS; i++) {
        unsigned char first = 0;
        MUST(cuMemcpyDtoH(&first, blocks[i], 1));
        EXPECT(first == 1);
        MUST(cuMemsetD8(blocks[i], 2, (i + 1) * MIB));
        MUST(cuMemFree(blocks[i]));
    }
    /* Nor can a chunk be mapped at addresses that the pool keeps. */
    EXPECT(cuMemMap(blocks[0] / (2 * MIB) * (2 * MIB), 2 * MIB, 0, chunk, 0) ==
           CUDA_ERROR_INVALID_VALUE);
    settle();
    EXPECT(cuMemMap(blocks[0] / (2 * MIB) * (2 * MIB), 2 * MIB, 0, chunk, 0) ==
           CUDA_ERROR_INVALID_VALUE);
    MUST(cuMemRelease(chunk));
}

/* Blocks whose contents have moved to the host are device memory to everybody who asks. */
void spilled(void)
{
    enum { BLOCKS = 24 };
    CUdeviceptr blocks[BLOCKS];
    struct memshim_stats stats = {.size = sizeof(stats)};
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemAlloc(&blocks[i], 8 * MIB));
        MUST(cuMemsetD8(blocks[i], 1, 8 * MIB));
    }
    MUST(memshim_stats(device, &stats));
    EXPECT(stats.spilled_bytes > 0);
    for (int i = 0; i < BLOCKS; i++) {
        unsigned int type = 0;
        int ordinal = -1;
        void *host = &type;
        CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                       CU_POINTER_ATTRIBUTE_HOST_POINTER};
        void *answers[] = {&type, &host};
        MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, blocks[i]));
        EXPECT(type == CU_MEMORYTYPE_DEVICE);
        MUST(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, blocks[i]));
        EXPECT(ordinal == device);
        EXPECT(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, blocks[i]) ==
               CUDA_ERROR_INVALID_VALUE);
        EXPECT(host == NULL);
        type = 0;
        MUST(cuPointerGetAttributes(2, asked, answers, blocks[i]));
        EXPECT(type == CU_MEMORYTYPE_DEVICE && host == NULL);
    }
}

/* A block that a framework carves up counts by what is alive in it. */
void arena(void)
{
    CUdeviceptr carved;
    CUdeviceptr plain;
    EXPECT(memshim_range_born != NULL);
    MUST(cuMemAlloc(&carved, 8 * MIB));
    memshim_range_born(device, (const void *)(uintptr_t)carved, MIB);
    memshim_range_born(device, (const void *)(uintptr_t)(carved + 4 * MIB), 2 * MIB);
    MUST(cuMemAlloc(&plain, 16 * MIB));
    memshim_range_died(device, (const void *)(uintptr_t)carved, MIB);
    MUST(cuMemFree(plain));
    MUST(cuMemFree(carved)); /* with a range that was never reported dead */
}

/* --- the GPUDirect-RDMA flag (SIMGPU_RDMA) --- */

/* Of memory that came after the first chunk, whatever the test of the flag had met there. */
static unsigned later_flag(void)
{
    CUdeviceptr block;
    unsigned capable = 2;
    for (int i = 0; i < 2; i++) {
        MUST(cuMemAlloc(&block, 64 * MIB));
    }
    MUST(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
                               block + 64 * MIB - 1));
    return capable;
}

void gpudirect(void)
{
    EXPECT(later_flag() == 1);
}

void no_gpudirect(void)
{
    EXPECT(later_flag() == 0);
}

/* --- two devices (SIMGPU_DEVICES=2) --- */

/* What the current context's device may do at an address. */
static CUmemAccess_flags access_to(CUdeviceptr at)
{
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    MUST(cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, at));
    return flags;
}

void peers(void)
{
    CUcontext second;
    CUdeviceptr here;
    CUdeviceptr there;
    CUdeviceptr later;
    unsigned char byte = 0;
    MUST(cuMemAlloc(&here, 4 * MIB));
    MUST(cuMemsetD8(here, 9, 4 * MIB));
    MUST(cuDevicePrimaryCtxRetain(&second, 1));
    MUST(cuCtxSetCurrent(second));
    MUST(cuMemAlloc(&there, 4 * MIB));
    MUST(cuMemcpyDtoD(there, here, 4 * MIB)); /* staged by the driver, were it the driver's */
    MUST(cuMemcpyDtoH(&byte, there + MIB, 1));
    EXPECT(byte == 9);
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = here,
                          .srcPitch = KIB,
                          .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .dstDevice = there,
                          .dstPitch = 2 * KIB,
                          .WidthInBytes = 512,
                          .Height = 16};
    MUST(cuMemsetD8(there, 0, 4 * MIB));
    MUST(cuMemcpy2D(&rows));
    MUST(cuMemcpyDtoH(&byte, there + (size_t)(15 * 2) * KIB + 511, 1));
    EXPECT(byte == 9);
    MUST(cuMemcpyDtoH(&byte, there + 512, 1));
    EXPECT(byte == 0);
    MUST(cuCtxEnablePeerAccess(context, 0));
    EXPECT(access_to(here) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc(&later, 100 * MIB)); /* the pool grows after the access was given */
    MUST(cuCtxSetCurrent(second));
    EXPECT(access_to(later + 99 * MIB) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    MUST(cuCtxDisablePeerAccess(context));
    EXPECT(access_to(here) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    MUST(cuMemFree(there));
    MUST(cuMemFree(here)); /* any context may free it */
    MUST(cuMemFree(later));
}

/* A stream of another device than the current one, on which the memory lies. */
void peers_stream(void)
{
    CUcontext second;
    CUstream stream;
    CUdeviceptr there;
    unsigned char byte = 0;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuDevicePrimaryCtxRetain(&second, 1));
    MUST(cuCtxSetCurrent(second));
    MUST(cuMemAlloc(&there, 4 * MIB));
    MUST(cuMemsetD8(there, 5, 4 * MIB));
    MUST(cuMemcpyDtoHAsync(&byte, there + 3 * MIB, 1, stream));
    MUST(cuStreamSynchronize(stream));
    EXPECT(byte == 5);
    MUST(cuMemsetD8Async(there, 6, 4 * MIB, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemcpyDtoH(&byte, there + MIB, 1));
    EXPECT(byte == 6);
    MUST(cuMemFree(there));
}

/* Memory of one device from a context of the other, while a stream captures. */
void peers_captured(void)
{
    CUcontext second;
    CUstream stream;
    CUgraph graph;
    CUdeviceptr here;
    CUdeviceptr there;
    CUstreamCaptureStatus status;
    unsigned char byte = 0;
    MUST(cuMemAlloc(&here, 4 * MIB));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuDevicePrimaryCtxRetain(&second, 1));
    MUST(cuCtxSetCurrent(second));
    MUST(cuMemAlloc(&there, 4 * MIB));
    MUST(cuMemsetD8(there, 5, 4 * MIB));

    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemsetD8(here, 9, 4 * MIB));
    MUST(cuMemcpyDtoH(&byte, here + 3 * MIB, 1));
    EXPECT(byte == 9);
    MUST(cuMemcpyDtoD(here, there, 4 * MIB));
    MUST(cuMemcpyDtoH(&byte, here + 3 * MIB, 1));
    EXPECT(byte == 5);
    MUST(cuStreamIsCapturing(stream, &status));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphDestroy(graph));
    MUST(cuMemFree(there));
    MUST(cuMemFree(here));
}

/* A copy that becomes a peer copy is answered as the plain copy would have been. */
void peers_refused(void)
{
    CUcontext second;
    CUstream stream;
    CUgraph graph;
    CUdeviceptr here;
    CUdeviceptr there;
    MUST(cuMemAlloc(&here, 4 * MIB));
    MUST(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    MUST(cuDevicePrimaryCtxRetain(&second, 1));
    MUST(cuCtxSetCurrent(second));
    MUST(cuMemAlloc(&there, 4 * MIB));
    MUST(cuCtxSetCurrent(context));

    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CUDA_MEMCPY2D nothing = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                             .srcDevice = here,
                             .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                             .dstDevice = there,
                             .Height = 3};
    MUST(cuMemcpy2D(&nothing));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphDestroy(graph));

    MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT(cuMemcpyDtoD(there, here, 4 * MIB) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    MUST(cuMemFree(there));
    MUST(cuMemFree(here));
}
