/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory management. See vmm.h. */
#include "vmm.h"

#include "bus.h"
#include "capture.h"
#include "context.h"
#include "cost.h"
#include "device.h"
#include "entry.h"
#include "memory.h"
#include "multicast.h"
#include "shareable.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Handles are not addresses, so that a wrong one is never dereferenced. */
#define HANDLE_TAG 0x5100000000000000ull

static struct sim_tree reservations, mappings;
static uint64_t last_mapping_id = 1ull << 32;

struct sim_mapping *sim_mapping_at(CUdeviceptr address)
{
    struct sim_node *node = sim_tree_floor(&mappings, address, UINT64_MAX);
    if (!node) {
        return NULL;
    }
    struct sim_mapping *mapping = SIM_OWNER(node, struct sim_mapping, node);
    return address < (CUdeviceptr)mapping->address + mapping->bytes ? mapping : NULL;
}

bool sim_is_mapped(CUdeviceptr address, uint64_t bytes)
{
    const struct sim_mapping *mapping = NULL;
    for (CUdeviceptr at = address; at < address + bytes;
         at = (CUdeviceptr)mapping->address + mapping->bytes) {
        mapping = sim_mapping_at(at);
        if (!mapping) {
            return false;
        }
    }
    return true;
}

struct sim_reservation *sim_reservation_at(CUdeviceptr address)
{
    struct sim_node *node = sim_tree_floor(&reservations, address, UINT64_MAX);
    if (!node) {
        return NULL;
    }
    struct sim_reservation *found = SIM_OWNER(node, struct sim_reservation, node);
    return address < (CUdeviceptr)found->address + found->bytes ? found : NULL;
}

CUmemGenericAllocationHandle sim_chunk_handle(const struct sim_chunk *chunk)
{
    return (CUmemGenericAllocationHandle)(uintptr_t)chunk | HANDLE_TAG;
}

struct sim_chunk *sim_chunk_of(CUmemGenericAllocationHandle handle)
{
    if ((handle & HANDLE_TAG) != HANDLE_TAG) {
        return NULL;
    }
    struct sim_chunk *chunk = (struct sim_chunk *)(uintptr_t)(handle & ~HANDLE_TAG);
    return sim_object_is(&sim_chunks, chunk) ? chunk : NULL;
}

static bool is_granular(uint64_t value)
{
    return value % SIM_GRANULE_BYTES == 0;
}

/* ---- addresses ------------------------------------------------------------------------------ */

/* Reserves aligned, inaccessible addresses; at `hint` if that is free. NULL: failed. */
static char *reserve(size_t bytes, size_t alignment, CUdeviceptr hint)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (hint && hint % alignment == 0) {
        char *at = mmap((void *)hint, bytes, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
        if (at == (char *)hint) {
            return at;
        }
        if (at != MAP_FAILED) {
            munmap(at, bytes); /* a kernel that does not know MAP_FIXED_NOREPLACE */
        }
    }
    char *wide = mmap(NULL, bytes + alignment, PROT_NONE, flags, -1, 0);
    if (wide == MAP_FAILED) {
        return NULL;
    }
    char *start = (char *)(((uintptr_t)wide + alignment - 1) & ~(uintptr_t)(alignment - 1));
    size_t before = (size_t)(start - wide);
    if (before) {
        munmap(wide, before);
    }
    munmap(start + bytes, alignment - before);
    return start;
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags)
{
    SIM_ENTER(cuMemAddressReserve);
    if (!sim_settings.vmm) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!ptr || size == 0 || !is_granular(size) || flags || (alignment & (alignment - 1))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (size > 1ull << 46) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    alignment = alignment < SIM_GRANULE_BYTES ? SIM_GRANULE_BYTES : alignment;
    struct sim_reservation *reservation = sim_object_new(&sim_reservations);
    if (!reservation) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    reservation->address = reserve(size, alignment, addr);
    if (!reservation->address) {
        sim_object_free(&sim_reservations, reservation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    reservation->bytes = size;
    reservation->node.key = (uint64_t)reservation->address;
    sim_tree_insert(&reservations, &reservation->node);
    *ptr = (CUdeviceptr)reservation->address;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    SIM_ENTER(cuMemAddressFree);
    struct sim_reservation *reservation = sim_reservation_at(ptr);
    if (!reservation || (CUdeviceptr)reservation->address != ptr || reservation->bytes != size ||
        reservation->mappings) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    munmap(reservation->address, reservation->bytes);
    sim_tree_remove(&reservations, &reservation->node);
    sim_object_free(&sim_reservations, reservation);
    return CUDA_SUCCESS;
}

/* ---- chunks --------------------------------------------------------------------------------- */

static bool is_host_location(CUmemLocationType type)
{
    return type == CU_MEM_LOCATION_TYPE_HOST || type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
           type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

/* CUDA_SUCCESS if memory with these properties can be made; *device: the device, or NULL for the
 * host. */
static CUresult check_properties(const CUmemAllocationProp *properties, struct sim_device **device)
{
    const unsigned handle_types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    *device = NULL;
    if (!sim_settings.vmm) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((unsigned)properties->requestedHandleTypes & ~handle_types) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        *device = sim_device_of(properties->location.id);
        return *device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    }
    if (!is_host_location(properties->location.type)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!sim_settings.host_numa) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    bool numa = properties->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
    return numa && properties->location.id != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    SIM_ENTER(cuMemGetAllocationGranularity);
    struct sim_device *device;
    CUresult status = check_properties(prop, &device);
    if (status == CUDA_SUCCESS &&
        (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                          option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))) {
        status = CUDA_ERROR_INVALID_VALUE;
    }
    if (status == CUDA_SUCCESS) {
        *granularity = SIM_GRANULE_BYTES;
    }
    return status;
}

/* The caller holds sim_lock, which is released meanwhile: the chunk may be gone then. */
static void charge(enum sim_cost call, const struct sim_chunk *chunk)
{
    sim_charge_latency(sim_cost_ns(call, chunk->bytes, chunk->device == NULL, false));
}

static CUresult create(struct sim_chunk *chunk)
{
    if (chunk->device) {
        CUresult status = sim_account_charge(chunk->device->index, chunk->bytes);
        if (status != CUDA_SUCCESS) {
            return status;
        }
    }
    chunk->backing = chunk->device ? &chunk->device->backing : &sim_host_backing;
    if (!sim_extents_take(&chunk->backing->chunks, chunk->bytes, 1, &chunk->offset)) {
        if (chunk->device) {
            sim_account_uncharge(chunk->device->index, chunk->bytes);
        }
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    SIM_ENTER(cuMemCreate);
    struct sim_device *device;
    CUresult status = check_properties(prop, &device);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (!handle || size == 0 || !is_granular(size) || flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_chunk *chunk = sim_object_new(&sim_chunks);
    if (!chunk) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    chunk->properties = *prop;
    chunk->bytes = size;
    chunk->device = device;
    chunk->imported_fd = -1;
    chunk->handles = 1;
    status = create(chunk);
    if (status != CUDA_SUCCESS) {
        sim_object_free(&sim_chunks, chunk);
        return status;
    }
    *handle = sim_chunk_handle(chunk);
    charge(SIM_COST_CREATE, chunk);
    return CUDA_SUCCESS;
}

/* "The memory allocation will be freed when all outstanding mappings to the memory are unmapped and
 * when all outstanding references to the handle (including it's shareable counterparts) are also
 * released" (cuda.h, cuMemRelease). */
void sim_chunk_drop(struct sim_chunk *chunk)
{
    if (--chunk->object.references) {
        return;
    }
    if (chunk->team) {
        sim_team_end(chunk->team);
    } else if (chunk->imported_fd >= 0) {
        sim_shareable_close(chunk);
    } else {
        if (!sim_shareable_is_shared(chunk)) {
            sim_backing_discard(chunk->backing, chunk->offset, chunk->bytes);
            sim_extents_give(&chunk->backing->chunks, chunk->offset, chunk->bytes, NULL, NULL);
        }
        if (chunk->device) {
            sim_account_uncharge(chunk->device->index, chunk->bytes);
        }
    }
    sim_object_free(&sim_chunks, chunk);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    SIM_ENTER(cuMemRelease);
    struct sim_chunk *chunk = sim_chunk_of(handle);
    if (!chunk) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (--chunk->handles == 0) {
        sim_object_destroy(&chunk->object); /* mappings may keep the memory */
    }
    uint64_t takes_ns = sim_cost_ns(SIM_COST_RELEASE, chunk->bytes, chunk->device == NULL, false);
    sim_chunk_drop(chunk);
    sim_charge_latency(takes_ns);
    return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    SIM_ENTER(cuMemRetainAllocationHandle);
    struct sim_mapping *mapping = sim_mapping_at((CUdeviceptr)addr);
    if (!handle || !mapping) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (mapping->chunk->handles++ == 0) {
        sim_object_revive(&mapping->chunk->object);
    }
    mapping->chunk->object.references++;
    *handle = sim_chunk_handle(mapping->chunk);
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle)
{
    SIM_ENTER(cuMemGetAllocationPropertiesFromHandle);
    struct sim_chunk *chunk = sim_chunk_of(handle);
    if (!prop || !chunk || chunk->team) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *prop = chunk->properties;
    return CUDA_SUCCESS;
}

/* ---- mappings ------------------------------------------------------------------------------- */

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    SIM_ENTER(cuMemMap);
    struct sim_chunk *chunk = sim_chunk_of(handle);
    struct sim_reservation *reservation = sim_reservation_at(ptr);
    if (!chunk || !reservation || flags || size == 0 || !is_granular(size) || !is_granular(ptr) ||
        !is_granular(offset) || size > chunk->bytes || offset > chunk->bytes - size ||
        ptr + size > (CUdeviceptr)reservation->address + reservation->bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* "offset - [...] Must be 0 at this time" (cuda.h). A part from the beginning is refused, too
     * (seen: an H200, driver 580). */
    if (size != chunk->bytes) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    struct sim_node *next = sim_tree_ceiling(&mappings, ptr, 0);
    if (sim_mapping_at(ptr) || (next && next->key < ptr + size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (chunk->team) {
        sim_team_await(chunk->team);
    }
    struct sim_mapping *mapping = sim_object_new(&sim_mappings);
    if (!mapping) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    mapping->address = (char *)ptr;
    mapping->bytes = size;
    mapping->chunk = chunk;
    mapping->reservation = reservation;
    mapping->id = ++last_mapping_id;
    mapping->node.key = ptr;
    sim_tree_insert(&mappings, &mapping->node);
    chunk->object.references++;
    reservation->mappings++;
    charge(SIM_COST_MAP, chunk);
    return CUDA_SUCCESS;
}

static struct sim_mapping *mapping_after(const struct sim_mapping *mapping)
{
    return sim_mapping_at((CUdeviceptr)mapping->address + mapping->bytes);
}

/* The first mapping at or after `address` that begins before `end`; NULL: none. */
static struct sim_mapping *next_mapping(CUdeviceptr address, CUdeviceptr end)
{
    struct sim_node *node = sim_tree_ceiling(&mappings, address, 0);
    return node && node->key < end ? SIM_OWNER(node, struct sim_mapping, node) : NULL;
}

/* True: [address, address + bytes) begins and ends at boundaries of mappings. */
static bool is_framed(CUdeviceptr address, size_t bytes)
{
    const struct sim_mapping *first = sim_mapping_at(address);
    const struct sim_mapping *last = bytes ? sim_mapping_at(address + bytes - 1) : NULL;
    return first && last && (CUdeviceptr)first->address == address &&
           (CUdeviceptr)last->address + last->bytes == address + bytes;
}

/* True: and it has no hole. */
static bool is_covered(CUdeviceptr address, size_t bytes)
{
    if (!is_framed(address, bytes)) {
        return false;
    }
    const struct sim_mapping *mapping = sim_mapping_at(address);
    while (mapping && (CUdeviceptr)mapping->address + mapping->bytes < address + bytes) {
        mapping = mapping_after(mapping);
    }
    return mapping != NULL;
}

static CUresult hide(char *address, size_t bytes)
{
    void *at = mmap(address, bytes, PROT_NONE,
                    MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    SIM_ENTER(cuMemUnmap);
    /* "ptr, size [...] must be [...] a whole number of mappings" in effect: "should only unmap
     * complete mappings" (cuda.h). */
    if (!is_covered(ptr, size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = hide((char *)ptr, size);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    uint64_t takes_ns = 0;
    for (CUdeviceptr at = ptr; at < ptr + size;) {
        struct sim_mapping *mapping = sim_mapping_at(at);
        const struct sim_chunk *chunk = mapping->chunk;
        takes_ns +=
            sim_cost_ns(SIM_COST_UNMAP, chunk->bytes, chunk->device == NULL, mapping->bytes < size);
        at += mapping->bytes;
        sim_tree_remove(&mappings, &mapping->node);
        mapping->reservation->mappings--;
        sim_chunk_drop(mapping->chunk);
        sim_object_free(&sim_mappings, mapping);
    }
    sim_charge_latency(takes_ns);
    return CUDA_SUCCESS;
}

/* -1: of a multicast object, which the process itself cannot access. */
static int mapping_fd(const struct sim_mapping *mapping)
{
    if (mapping->chunk->team) {
        return -1;
    }
    return mapping->chunk->imported_fd >= 0 ? mapping->chunk->imported_fd
                                            : mapping->chunk->backing->fd;
}

static int protection(const struct sim_mapping *mapping)
{
    if (mapping->write_devices || mapping->host_write) {
        return PROT_READ | PROT_WRITE;
    }
    return mapping->read_devices || mapping->host_read ? PROT_READ : PROT_NONE;
}

/* Makes the process's own page tables agree with the access of [address, address + bytes). Mappings
 * that are neighbours in addresses and in the file are mapped in one call, because a process may
 * have only a limited number of mappings. */
static CUresult show(CUdeviceptr address, size_t bytes)
{
    struct sim_mapping *first, *last, *next;
    for (CUdeviceptr at = address; (first = next_mapping(at, address + bytes)) != NULL;) {
        last = first;
        while ((CUdeviceptr)last->address + last->bytes < address + bytes) {
            next = mapping_after(last);
            if (!next || mapping_fd(next) != mapping_fd(first) ||
                protection(next) != protection(first) ||
                next->chunk->offset != last->chunk->offset + last->bytes) {
                break;
            }
            last = next;
        }
        size_t length = (size_t)(last->address + last->bytes - first->address);
        at = (CUdeviceptr)first->address + length;
        if (mapping_fd(first) < 0) {
            continue;
        }
        void *shown = mmap(first->address, length, protection(first), MAP_FIXED | MAP_SHARED,
                           mapping_fd(first), (off_t)first->chunk->offset);
        if (shown == MAP_FAILED) {
            fprintf(stderr, "simgpu: mapping %zu bytes: %s\n", length, strerror(errno));
            return CUDA_ERROR_OPERATING_SYSTEM;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult check_access(const CUmemAccessDesc *desc)
{
    bool known_flags = desc->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                       desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                       desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (!known_flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (desc->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        return sim_device_of(desc->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    }
    return is_host_location(desc->location.type) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void set_access(struct sim_mapping *mapping, const CUmemAccessDesc *desc)
{
    bool read = desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    bool write = desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        mapping->host_read = read;
        mapping->host_write = write;
        return;
    }
    uint32_t bit = 1u << desc->location.id;
    mapping->read_devices = (mapping->read_devices & ~bit) | (read ? bit : 0);
    mapping->write_devices = (mapping->write_devices & ~bit) | (write ? bit : 0);
}

/* A device can access its own memory, the host's, and that of peers. */
static bool can_reach(const struct sim_mapping *mapping, const CUmemAccessDesc *desc)
{
    if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return mapping->chunk->device == NULL &&
               !mapping->chunk->team; /* the host can access only its own memory */
    }
    if (mapping->chunk->team) {
        return sim_team_has(mapping->chunk->team, sim_device_of(desc->location.id));
    }
    return !mapping->chunk->device || mapping->chunk->device->index == desc->location.id ||
           sim_settings.peers;
}

/* "The range must be a fully mapped address range" (cuda.h). Yet a range with a hole inside is not
 * refused (seen: an H200, driver 580): its mapped parts get the access. */
CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    SIM_ENTER(cuMemSetAccess);
    struct sim_reservation *reservation = sim_reservation_at(ptr);
    struct sim_mapping *mapping;
    if (!desc || count == 0 || !reservation || !is_framed(ptr, size) ||
        ptr + size > (CUdeviceptr)reservation->address + reservation->bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        CUresult status = check_access(&desc[i]);
        for (CUdeviceptr at = ptr;
             status == CUDA_SUCCESS && (mapping = next_mapping(at, ptr + size)) != NULL;) {
            status = can_reach(mapping, &desc[i]) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
            at = (CUdeviceptr)mapping->address + mapping->bytes;
        }
        if (status != CUDA_SUCCESS) {
            return status;
        }
    }
    uint64_t takes_ns = sim_settings.latency ? sim_bus_part_left_ns() : 0;
    for (CUdeviceptr at = ptr; (mapping = next_mapping(at, ptr + size)) != NULL;) {
        const struct sim_chunk *chunk = mapping->chunk;
        takes_ns += sim_cost_ns(SIM_COST_SET_ACCESS, chunk->bytes, chunk->device == NULL,
                                mapping->bytes < size);
        for (size_t i = 0; i < count; i++) {
            set_access(mapping, &desc[i]);
        }
        at = (CUdeviceptr)mapping->address + mapping->bytes;
    }
    CUresult status = show(ptr, size);
    sim_charge_latency(takes_ns);
    return status;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    SIM_ENTER(cuMemGetAccess);
    const struct sim_mapping *mapping = sim_mapping_at(ptr);
    const struct sim_range *range = sim_range_at(ptr);
    if (!flags || !location || (!mapping && !range)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!mapping) {
        /* Access by cuMemSetAccess, which does not apply to this memory (seen: an H200, driver
         * 580). */
        if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !range->device) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
        return sim_device_of(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    }
    bool read = mapping->host_read, write = mapping->host_write;
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
        if (!sim_device_of(location->id)) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        read = mapping->read_devices & (1u << location->id);
        write = mapping->write_devices & (1u << location->id);
    }
    *flags = write  ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
             : read ? CU_MEM_ACCESS_FLAGS_PROT_READ
                    : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}
