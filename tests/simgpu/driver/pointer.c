/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's answers about an address. */
#include "context.h"
#include "device.h"
#include "entry.h"
#include "memory.h"
#include "pool.h"
#include "stream.h"
#include "vmm.h"

#include <string.h>

static CUcontext context_of(const struct sim_location *location)
{
    return location->range ? location->range->context : NULL;
}

static int device_ordinal(const struct sim_location *location)
{
    if (location->range) {
        return location->range->device ? location->range->device->index : CU_DEVICE_INVALID;
    }
    const CUmemLocation *where = &location->mapping->chunk->properties.location;
    return where->type == CU_MEM_LOCATION_TYPE_DEVICE ? where->id : CU_DEVICE_INVALID;
}

static unsigned memory_type(const struct sim_location *location)
{
    bool host =
        location->place == SIM_PLACE_HOST ||
        (location->mapping && !location->mapping->chunk->device && !location->mapping->chunk->team);
    return host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

struct span {
    CUdeviceptr start;
    uint64_t bytes;
};

/* "Note that this is not necessarily the address of the mapped region, but the address of the
 * mappable address range" (cuda.h). */
static struct span range_of(const struct sim_location *location)
{
    if (location->range) {
        return (struct span){(CUdeviceptr)location->range->address, location->range->bytes};
    }
    const struct sim_reservation *reservation = location->mapping->reservation;
    return (struct span){(CUdeviceptr)reservation->address, reservation->bytes};
}

/* Whole granules are mapped, for pools whole superblocks (seen: an H200, driver 580). */
static struct span mapping_of(const struct sim_location *location)
{
    const struct sim_range *range = location->range;
    struct span span = {0, 0};
    if (!range) {
        return (struct span){(CUdeviceptr)location->mapping->address, location->mapping->bytes};
    }
    span = (struct span){(CUdeviceptr)range->address, range->bytes};
    if (range->kind == SIM_RANGE_POOL) {
        sim_pool_superblock(range, &span.start, &span.bytes);
    } else if (range->kind == SIM_RANGE_DEVICE) {
        span.start -= span.start % SIM_GRANULE_BYTES;
        span.bytes += (CUdeviceptr)range->address - span.start;
    }
    if (range->kind == SIM_RANGE_DEVICE || range->kind == SIM_RANGE_MANAGED) {
        span.bytes += (SIM_GRANULE_BYTES - span.bytes % SIM_GRANULE_BYTES) % SIM_GRANULE_BYTES;
    }
    return span;
}

/* Host pointers work for page-locked and managed memory, and for mapped memory of the host. */
static CUresult host_pointer(const struct sim_location *location, CUdeviceptr address, void *data)
{
    bool reachable = location->place == SIM_PLACE_HOST || location->place == SIM_PLACE_MANAGED ||
                     (location->mapping && location->mapping->host_read);
    *(void **)data = reachable ? (void *)address : NULL;
    return reachable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult access_flags(const struct sim_location *location, void *data)
{
    if (!location->mapping) {
        *(CUmemAccess_flags *)data = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        return CUDA_SUCCESS;
    }
    CUcontext context = sim_current();
    if (!context) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    uint32_t bit = 1u << context->device->index;
    *(CUmemAccess_flags *)data =
        location->mapping->write_devices & bit  ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        : location->mapping->read_devices & bit ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

/* "Querying this attribute has a side effect of setting the attribute
 * CU_POINTER_ATTRIBUTE_SYNC_MEMOPS" (cuda.h). */
static void p2p_tokens(void *data, const struct sim_location *location)
{
    memset(data, 0, sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS));
    if (location->range) {
        location->range->sync_memops = true;
    } else {
        location->mapping->sync_memops = true; /* cuPointerSetAttribute cannot set it for this
                                                  memory */
    }
}

static bool is_legacy_ipc_capable(const struct sim_location *location)
{
    return location->range && location->range->kind == SIM_RANGE_DEVICE;
}

/* On a device that network cards can access: all memory of cuMemAlloc. */
static bool is_rdma_capable(const struct sim_location *location)
{
    return location->mapping ? location->mapping->chunk->properties.allocFlags.gpuDirectRDMACapable
                             : sim_settings.rdma && location->range->kind == SIM_RANGE_DEVICE;
}

/* cuda.h lists such memory (cuMemBatchDecompressAsync). */
static bool is_decompress_capable(const struct sim_location *location)
{
    if (location->mapping) {
        return location->mapping->chunk->properties.allocFlags.usage &
               CU_MEM_CREATE_USAGE_HW_DECOMPRESS;
    }
#if CUDA_VERSION >= 12080
    if (location->range->kind == SIM_RANGE_POOL) {
        return location->range->pool->properties.usage & CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS;
    }
#endif
    return location->range->kind == SIM_RANGE_DEVICE;
}

static CUresult get_known(void *data, CUpointer_attribute attribute, CUdeviceptr address,
                          const struct sim_location *location)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = context_of(location); /* mapped memory and that of pools has none */
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = memory_type(location);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        return host_pointer(location, address, data);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        p2p_tokens(data, location);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned *)data =
            location->range ? location->range->sync_memops : location->mapping->sync_memops;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = location->range ? location->range->id : location->mapping->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)data = location->place == SIM_PLACE_MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = device_ordinal(location);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned *)data = is_legacy_ipc_capable(location);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = range_of(location).start;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = range_of(location).bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned *)data = 1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(cuuint64_t *)data =
            location->mapping
                ? (cuuint64_t)location->mapping->chunk->properties.requestedHandleTypes
                : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(unsigned *)data = is_rdma_capable(location);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return access_flags(location, data);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = location->range ? location->range->pool : NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)data = mapping_of(location).bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)data = mapping_of(location).start;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)data = location->mapping
                                          ? (unsigned long long)location->mapping->chunk->offset
                                          : location->range->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *(unsigned *)data = is_decompress_capable(location);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static bool is_known(const struct sim_location *location)
{
    return location->range || location->mapping;
}

/* A reserved address without a mapping: only MAPPED has a value. */
static CUresult get_unknown(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    const struct sim_reservation *reservation = sim_reservation_at(address);
    if (reservation && attribute == CU_POINTER_ATTRIBUTE_MAPPED) {
        *(unsigned *)data = 0;
        return CUDA_SUCCESS;
    }
    if (reservation && attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) {
        *(CUdeviceptr *)data = (CUdeviceptr)reservation->address;
        return CUDA_SUCCESS;
    }
    if (reservation && attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
        *(size_t *)data = reservation->bytes;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    SIM_ENTER(cuPointerGetAttribute);
    if (!data) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_location location = sim_locate(ptr);
    return is_known(&location) ? get_known(data, attribute, ptr, &location)
                               : get_unknown(data, attribute, ptr);
}

/* The size of an attribute's value. */
static size_t value_bytes(CUpointer_attribute attribute)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return 4;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS);
    default:
        return 8;
    }
}

/*
 * "Unlike cuPointerGetAttribute, this function will not return an error when the ptr encountered is
 * not a valid CUDA pointer. Instead, the attributes are assigned default NULL values" (cuda.h); a
 * device ordinal becomes CU_DEVICE_INVALID.
 */
CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes,
                                void **data, CUdeviceptr ptr)
{
    SIM_ENTER(cuPointerGetAttributes);
    if (numAttributes == 0 || !attributes || !data) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_location location = sim_locate(ptr);
    for (unsigned i = 0; i < numAttributes; i++) {
        CUresult status = is_known(&location) ? get_known(data[i], attributes[i], ptr, &location)
                                              : get_unknown(data[i], attributes[i], ptr);
        if (status != CUDA_SUCCESS) {
            memset(data[i], 0, value_bytes(attributes[i]));
            if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
                *(int *)data[i] = CU_DEVICE_INVALID;
            }
        }
    }
    return CUDA_SUCCESS;
}

/* "If there are some previously initiated synchronous memory operations that are pending when this
 * attribute is set, the function does not return until those memory operations are complete"
 * (cuda.h). */
static void wait_for_synchronous_work(void)
{
    const CUstream defaults[] = {CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++) {
        CUresult status;
        CUstream stream = sim_stream_of(defaults[i], &status);
        if (stream && !stream->capture) {
            sim_wait_position(stream, stream->submitted);
        }
    }
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    SIM_ENTER(cuPointerSetAttribute);
    struct sim_location location = sim_locate(ptr);
    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !is_known(&location)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!location.range) {
        return CUDA_ERROR_NOT_SUPPORTED; /* mapped memory: the answer of an H200 with driver 580 */
    }
    location.range->sync_memops = *(const unsigned *)value != 0;
    if (location.range->sync_memops) {
        wait_for_synchronous_work();
    }
    return CUDA_SUCCESS;
}

/* ---- managed memory -------------------------------------------------------------------------- */

static CUresult range_attribute(void *data, size_t data_bytes, CUmem_range_attribute attribute,
                                CUdeviceptr address, size_t bytes)
{
    const struct sim_range *range = sim_range_at(address);
    if (!data || !range || range->kind != SIM_RANGE_MANAGED || bytes == 0 ||
        address + bytes > (CUdeviceptr)range->address + range->bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memset(data, 0, data_bytes);
    if (data_bytes >= 4 && (attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION ||
                            attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION)) {
        *(int *)data = attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION && range->charged
                           ? range->device->index
                           : CU_DEVICE_INVALID;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute,
                                CUdeviceptr devPtr, size_t count)
{
    SIM_ENTER(cuMemRangeGetAttribute);
    return range_attribute(data, dataSize, attribute, devPtr, count);
}

CUresult cuMemRangeGetAttributes(void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count)
{
    SIM_ENTER(cuMemRangeGetAttributes);
    if (!data || !dataSizes || !attributes || numAttributes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = CUDA_SUCCESS;
    for (size_t i = 0; i < numAttributes && status == CUDA_SUCCESS; i++) {
        status = range_attribute(data[i], dataSizes[i], attributes[i], devPtr, count);
    }
    return status;
}
