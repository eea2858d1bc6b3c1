/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about an address. For the pool's memory the answer is about the block, and for one of
 * PyTorch's pages about the page: the driver knows only the mappings behind them, or none. */
#include "shim/device/addresses/reservations.h"
#include "shim/device/context.h"
#include "shim/device/mempools.h"
#include "shim/hooks/serve.h"
#include "shim/policy/host_blocks.h"
#include "shim/policy/proxies.h"
#include "shim/policy/sync_memops.h"
#include "shim/sharing/exports.h"
#include "shim/sharing/imports.h"

/* A block of another process that is open here. The driver knows it only by its chunks. */
static bool open_at(CUdeviceptr_v2 addr, struct ms_device **device, struct ms_block_info *block)
{
    struct ms_import_view view;
    if (!ms_imports_at(addr, &view)) {
        return false;
    }
    *block = (struct ms_block_info){.id = view.id,
                                    .holder = &view.context->holder,
                                    .addr = view.addr,
                                    .bytes = view.bytes,
                                    .marked = view.marked};
    *device = view.context->device;
    return true;
}

/* The live block that holds addr. A block that lies on the host from the start counts as device
 * memory, which the program asked for. */
static bool block_at(CUdeviceptr_v2 addr, struct ms_device **device, struct ms_block_info *block)
{
    *device = ms_device_holding(addr);
    if (!*device) {
        return ms_host_block_at(addr, device, block) || open_at(addr, device, block);
    }
    return ms_pool_find((*device)->pool, addr, block) == MS_OK &&
           !ms_exports_keep(*device, block->addr);
}

CUresult ms_serve_cuMemGetAddressRange_v2(CUdeviceptr_v2 *pbase, size_t *psize, CUdeviceptr_v2 dptr)
{
    struct ms_device *device = NULL;
    struct ms_block_info block;
    struct ms_context *context = NULL;
    if (!pbase && !psize) {
        return MS_REAL(cuMemGetAddressRange_v2)(pbase, psize, dptr); /* the call asks for nothing */
    }
    CUresult result = ms_context_query(&context);
    if (result != CUDA_SUCCESS || !context) {
        return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_CONTEXT : result;
    }
    if (!block_at(dptr, &device, &block)) {
        struct ms_proxy_view page;
        if (!device && ms_proxies_at(dptr, &page)) {
            block.addr = page.addr;
            block.bytes = page.bytes;
        } else {
            /* Between blocks there is no allocation, even if something is mapped there. */
            return device ? CUDA_ERROR_NOT_FOUND
                          : MS_REAL(cuMemGetAddressRange_v2)(pbase, psize, dptr);
        }
    }
    if (pbase) {
        *pbase = block.addr;
    }
    if (psize) {
        *psize = block.bytes;
    }
    return CUDA_SUCCESS;
}

CUresult ms_serve_cuMemGetAddressRange(CUdeviceptr_v1 *pbase, unsigned int *psize,
                                       CUdeviceptr_v1 dptr)
{
    return MS_REAL(cuMemGetAddressRange)(pbase, psize, dptr);
}

/* Stream-ordered memory belongs to no context. */
static bool is_of_context(const struct ms_block_info *block)
{
    return block->holder && block->holder->kind == MS_HOLDER_CONTEXT;
}

/* Whether cuIpcGetMemHandle accepts it: only memory of cuMemAlloc, if chunks can be shared. */
static bool has_name(const struct ms_device *device, const struct ms_block_info *block)
{
    return ms_device_holding(block->addr) && is_of_context(block) &&
           atomic_load(&device->share_flag) == 1;
}

/* To the driver, a block's mapping is the whole granules that it touches. */
static uint64_t mapping_start(const struct ms_device *device, const struct ms_block_info *block)
{
    const uint64_t granule = device->granule_bytes ? device->granule_bytes : 1;
    return block->addr / granule * granule;
}

static uint64_t mapping_bytes(const struct ms_device *device, const struct ms_block_info *block)
{
    const uint64_t granule = device->granule_bytes ? device->granule_bytes : 1;
    const uint64_t end = block->addr + block->bytes;
    return (end + granule - 1) / granule * granule - mapping_start(device, block);
}

/* A property with which chunks are made: cuMemAlloc's memory has it; stream-ordered memory lacks
 * it, though it lies in the same chunks (seen: an H200, driver 580). False: chunks are made without
 * it, or the block is not in a pool. */
static bool answer_trait(const _Atomic int *flag, const struct ms_block_info *block, void *data)
{
    if (block->id == 0 || atomic_load(flag) != 1) {
        return false;
    }
    *(unsigned int *)data = is_of_context(block);
    return true;
}

/* Answers if the block knows better than the driver; false if the driver's answer stands. For the
 * driver, a block whose contents moved to the host is host memory (CU_POINTER_ATTRIBUTE_MEMORY_TYPE
 * is that of the physical memory). A program that believes it would let the processor touch it. */
static bool answer(const struct ms_device *device, const struct ms_block_info *block,
                   CUpointer_attribute attribute, void *data)
{
    const struct ms_holder *holder = block->holder;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned int *)data = CU_MEMORYTYPE_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = device->ordinal;
        return true;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *(void **)data = NULL;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr_v2 *)data = block->addr;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = block->bytes;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr_v2 *)data = mapping_start(device, block);
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)data = mapping_bytes(device, block);
        return true;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        return answer_trait(&device->rdma_flag, block, data);
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return answer_trait(&device->decompress_flag, block, data);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(cuuint64_t *)data = CU_MEM_HANDLE_TYPE_NONE; /* its chunks have one, which is ours */
        return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        if (block->id != 0) {
            *(unsigned long long *)data = block->id;
        }
        return block->id != 0; /* not in a pool: the driver has one for it */
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        if (block->id != 0) {
            *(unsigned int *)data = block->marked;
        }
        return block->id != 0; /* not in a pool: the driver keeps it */
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned int *)data = has_name(device, block);
        return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned int *)data = 0;
        return true;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        if (!is_of_context(block)) {
            return false;
        }
        *(CUcontext *)data = ((const struct ms_context *)holder)->handle;
        return true;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = NULL;
        if (holder && holder->kind == MS_HOLDER_MEMPOOL) {
            *(CUmemoryPool *)data = ((const struct ms_mempool *)holder)->handle;
        }
        return true;
    default:
        return false;
    }
}

/* The range around a page: what its name is of, where it stands for memory of cudaMalloc. Otherwise
 * the reservation: "not necessarily the address of the mapped region, but the address of the
 * mappable address range" (cuda.h). */
static struct ms_reservation range_of(const struct ms_proxy_view *page)
{
    struct ms_reservation range = {.addr = page->addr, .bytes = page->bytes};
    if (!ms_proxies_are_malloc()) {
        (void)ms_reservations_at(page->addr, 1, &range);
    } else if (page->accessible) {
        range.bytes = ms_proxies_named_bytes(page->addr);
    }
    return range;
}

/* The same for a page, even if nothing backs it at the moment. */
static bool answer_page(const struct ms_proxy_view *page, CUpointer_attribute attribute,
                        CUdeviceptr_v2 ptr, void *data)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *(void **)data = NULL;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr_v2 *)data = range_of(page).addr;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = range_of(page).bytes;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr_v2 *)data = page->addr;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)data = page->bytes;
        return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)data = page->handle;
        return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned int *)data = CU_MEMORYTYPE_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr_v2 *)data = ptr;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = page->prop.location.id;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned int *)data = 1;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned int *)data = 0;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *(unsigned int *)data =
            (page->prop.allocFlags.usage & CU_MEM_CREATE_USAGE_HW_DECOMPRESS) != 0;
        return true;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        /* The driver refuses to set the attribute for mapped memory; reading the tokens sets it.
         * That read pins the page, so that it is backed. */
        if (MS_REAL(cuPointerGetAttribute)(data, attribute, ptr) != CUDA_SUCCESS) {
            *(unsigned int *)data = 0;
        }
        return true;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = NULL;
        return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(cuuint64_t *)data = (cuuint64_t)page->prop.requestedHandleTypes;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(unsigned int *)data = page->prop.allocFlags.gpuDirectRDMACapable;
        return true;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = NULL;
        return true;
    default:
        return false;
    }
}

/* What lies at an address. */
struct pointer_subject {
    struct ms_device *device; /* of the block */
    struct ms_block_info block;
    struct ms_proxy_view page;
    bool is_block, is_page;
};

static bool find_subject(CUdeviceptr_v2 ptr, struct pointer_subject *subject)
{
    subject->is_block = block_at(ptr, &subject->device, &subject->block);
    subject->is_page = !subject->device && ms_proxies_at(ptr, &subject->page);
    return subject->is_block || subject->is_page;
}

/* Between blocks there is no allocation, whatever is mapped there: the driver is asked about an
 * address that nobody has. */
static CUdeviceptr_v2 asked_instead(const struct pointer_subject *subject, bool found,
                                    CUdeviceptr_v2 ptr)
{
    return !found && subject->device ? (CUdeviceptr_v2)1 : ptr;
}

static bool answer_subject(const struct pointer_subject *subject, CUpointer_attribute attribute,
                           CUdeviceptr_v2 ptr, void *data)
{
    return subject->is_block ? answer(subject->device, &subject->block, attribute, data)
                             : answer_page(&subject->page, attribute, ptr, data);
}

/* Tokens with which a network card's driver registers the memory. "Querying this attribute has a
 * side effect of setting the attribute CU_POINTER_ATTRIBUTE_SYNC_MEMOPS" (cuda.h). */
static bool shows_identity(CUpointer_attribute attribute)
{
    return attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS;
}

/* Sets that attribute after the driver has given its tokens. */
static CUresult shown_identity(CUpointer_attribute attribute, CUdeviceptr_v2 ptr, CUresult result)
{
    return result == CUDA_SUCCESS && shows_identity(attribute)
               ? ms_sync_memops_set(ptr, true, result)
               : result;
}

CUresult ms_serve_cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                                        CUdeviceptr_v2 ptr)
{
    struct pointer_subject subject;
    if (shows_identity(attribute) && !ms_serve_pin(ptr, 1)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const bool found = find_subject(ptr, &subject);
    if (data && found && answer_subject(&subject, attribute, ptr, data)) {
        /* cuda.h: without a host pointer, null and this error. */
        return attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER ? CUDA_ERROR_INVALID_VALUE
                                                              : CUDA_SUCCESS;
    }
    ptr = asked_instead(&subject, found, ptr);
    return shown_identity(attribute, ptr, MS_REAL(cuPointerGetAttribute)(data, attribute, ptr));
}

CUresult ms_serve_cuPointerGetAttributes(unsigned int numAttributes,
                                         CUpointer_attribute *attributes, void **data,
                                         CUdeviceptr_v2 ptr)
{
    struct pointer_subject subject;
    const unsigned int count = attributes && data ? numAttributes : 0;
    for (unsigned int i = 0; i < count; i++) {
        if (shows_identity(attributes[i]) && !ms_serve_pin(ptr, 1)) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    const bool found = find_subject(ptr, &subject);
    CUresult result = MS_REAL(cuPointerGetAttributes)(numAttributes, attributes, data,
                                                      asked_instead(&subject, found, ptr));
    if (result == CUDA_SUCCESS && found) {
        for (unsigned int i = 0; i < count; i++) {
            (void)answer_subject(&subject, attributes[i], ptr, data[i]);
            result = shown_identity(attributes[i], ptr, result);
        }
    }
    return result;
}

CUresult ms_serve_cuMemGetAccess(unsigned long long *flags, const CUmemLocation_v1 *location,
                                 CUdeviceptr_v2 ptr)
{
    struct pointer_subject subject;
    struct ms_reservation reservation;
    if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
        !ms_device_get(location->id) || !find_subject(ptr, &subject) ||
        (subject.is_page && !ms_reservations_at(ptr, 1, &reservation))) {
        return MS_REAL(cuMemGetAccess)(flags, location, ptr);
    }
    /* cuMemSetAccess applies only to what cuMemMap mapped (seen: an H200, driver 580). */
    *flags = subject.is_page && subject.page.accessible
                 ? ms_access_of(&reservation.access, location->id)
                 : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

/* --- calls that pin memory -------------------------------------------------------------------- */

/* Pinned before the driver is asked. After its answer a device may already know the place; and if
 * the memory moved meanwhile, the answer would name a place that is soon another block's. */
bool ms_serve_pin(uint64_t addr, uint64_t bytes)
{
    struct ms_device *device = ms_device_holding(addr);
    if (!device) {
        return ms_proxies_pin(addr, bytes);
    }
    return ms_pool_pin_range(device->pool, addr, bytes) == MS_OK;
}

CUresult ms_serve_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                        CUdeviceptr_v2 ptr)
{
    /* The first step of a registration with a network card (GPUDirect RDMA). */
    const bool syncs = attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && value;
    if (syncs && !ms_serve_pin(ptr, 1)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = MS_REAL(cuPointerSetAttribute)(value, attribute, ptr);
    return syncs ? ms_sync_memops_set(ptr, *(const unsigned int *)value != 0, result) : result;
}

CUresult ms_serve_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
                                                CUmemRangeHandleType handleType,
                                                unsigned long long flags)
{
    return ms_serve_pin(dptr, size)
               ? MS_REAL(cuMemGetHandleForAddressRange)(handle, dptr, size, handleType, flags)
               : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult ms_serve_cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                                      CUdeviceptr memptr, size_t size, unsigned long long flags)
{
    return ms_serve_pin(memptr, size)
               ? MS_REAL(cuMulticastBindAddr)(mcHandle, mcOffset, memptr, size, flags)
               : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult ms_serve_cuMulticastBindAddr_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev,
                                         size_t mcOffset, CUdeviceptr memptr, size_t size,
                                         unsigned long long flags)
{
    return ms_serve_pin(memptr, size)
               ? MS_REAL(cuMulticastBindAddr_v2)(mcHandle, dev, mcOffset, memptr, size, flags)
               : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Pins a page and replaces its handle by the driver's. Any other handle is the application's own,
 * or one that memshim gave it, whose memory is pinned already. */
static CUresult shown(CUmemGenericAllocationHandle *handle)
{
    return ms_proxies_own(*handle) ? ms_proxies_show(*handle, handle) : CUDA_SUCCESS;
}

CUresult ms_serve_cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                                     CUmemGenericAllocationHandle memHandle, size_t memOffset,
                                     size_t size, unsigned long long flags)
{
    CUresult result = shown(&memHandle);
    return result == CUDA_SUCCESS
               ? MS_REAL(cuMulticastBindMem)(mcHandle, mcOffset, memHandle, memOffset, size, flags)
               : result;
}

CUresult ms_serve_cuMulticastBindMem_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev,
                                        size_t mcOffset, CUmemGenericAllocationHandle memHandle,
                                        size_t memOffset, size_t size, unsigned long long flags)
{
    CUresult result = shown(&memHandle);
    return result == CUDA_SUCCESS ? MS_REAL(cuMulticastBindMem_v2)(
                                        mcHandle, dev, mcOffset, memHandle, memOffset, size, flags)
                                  : result;
}

CUresult ms_serve_cuMulticastCreate(CUmemGenericAllocationHandle *mcHandle,
                                    const CUmulticastObjectProp *prop)
{
    return MS_REAL(cuMulticastCreate)(mcHandle, prop);
}

CUresult ms_serve_cuMulticastAddDevice(CUmemGenericAllocationHandle mcHandle, CUdevice dev)
{
    return MS_REAL(cuMulticastAddDevice)(mcHandle, dev);
}

CUresult ms_serve_cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev,
                                    size_t mcOffset, size_t size)
{
    return MS_REAL(cuMulticastUnbind)(mcHandle, dev, mcOffset, size);
}
