/* SPDX-License-Identifier: Apache-2.0 */
/* Multicast objects. See multicast.h. An object is a chunk without memory (vmm.h); what its team
 * shares between processes lies in a file of its own, whose descriptor is what is exported.
 *
 * Assumed, because no card with a switch was there: both granularities are the granule; an object
 * has no properties as an allocation; a device is added once; one device's memory may not be bound
 * twice at an offset. Memory that is bound by its address lies in one mapping; a pool's is
 * refused, which the real driver takes. */
#include "multicast.h"

#include "context.h"
#include "device.h"
#include "entry.h"
#include "vmm.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define TEAM_MAGIC 0x53494d5445414d00ull

/* In the shared file. */
struct team_file {
    uint64_t magic, bytes;
    uint32_t wanted; /* devices */
    uint32_t handle_types;
    _Atomic uint64_t added; /* bit i: device i */
};

struct binding {
    struct binding *next;
    const struct sim_device *device;
    struct sim_chunk *memory;
    uint64_t offset, bytes; /* in the object */
};

struct sim_team {
    struct team_file *file;
    int fd;
    struct binding *bindings; /* of this process */
};

/* ---- teams ---------------------------------------------------------------------------------- */

/* Takes the descriptor. NULL: no memory. */
static struct sim_team *team_of(int fd)
{
    struct sim_team *team = calloc(1, sizeof *team);
    void *file = mmap(NULL, sizeof *team->file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!team || file == MAP_FAILED) {
        free(team);
        close(fd);
        return NULL;
    }
    team->file = file;
    team->fd = fd;
    return team;
}

static bool is_whole(const struct sim_team *team)
{
    return (uint32_t)__builtin_popcountll(atomic_load(&team->file->added)) == team->file->wanted;
}

void sim_team_await(const struct sim_team *team)
{
    while (!is_whole(team)) {
        sim_wait_progress();
    }
}

bool sim_team_has(const struct sim_team *team, const struct sim_device *device)
{
    return device && (atomic_load(&team->file->added) >> device->index & 1) != 0;
}

int sim_team_export(const struct sim_team *team)
{
    return fcntl(team->fd, F_DUPFD_CLOEXEC, 0);
}

static CUmemAllocationProp properties_of(const struct team_file *file)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = (CUmemAllocationHandleType)file->handle_types,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
    };
}

struct sim_team *sim_team_import(int fd, CUmemAllocationProp *properties, uint64_t *bytes)
{
    struct team_file file;
    if (pread(fd, &file, sizeof file, 0) != sizeof file || file.magic != TEAM_MAGIC) {
        return NULL;
    }
    *properties = properties_of(&file);
    *bytes = file.bytes;
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return own >= 0 ? team_of(own) : NULL;
}

static void unbind(struct binding **at)
{
    struct binding *binding = *at;
    *at = binding->next;
    sim_chunk_drop(binding->memory);
    free(binding);
}

void sim_team_end(struct sim_team *team)
{
    while (team->bindings) {
        unbind(&team->bindings);
    }
    munmap(team->file, sizeof *team->file);
    close(team->fd);
    free(team);
}

/* ---- the functions of the driver API -------------------------------------------------------- */

static bool is_granular(uint64_t value)
{
    return value % SIM_GRANULE_BYTES == 0;
}

static CUresult check_properties(const CUmulticastObjectProp *prop)
{
    if (!sim_settings.multicast) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!prop || prop->numDevices == 0 || prop->size == 0 || prop->flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return prop->handleTypes & ~(unsigned long long)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
               ? CUDA_ERROR_NOT_SUPPORTED
               : CUDA_SUCCESS;
}

CUresult cuMulticastGetGranularity(size_t *granularity, const CUmulticastObjectProp *prop,
                                   CUmulticastGranularity_flags option)
{
    SIM_ENTER(cuMulticastGetGranularity);
    CUresult status = check_properties(prop);
    if (status == CUDA_SUCCESS &&
        (!granularity || (option != CU_MULTICAST_GRANULARITY_MINIMUM &&
                          option != CU_MULTICAST_GRANULARITY_RECOMMENDED))) {
        status = CUDA_ERROR_INVALID_VALUE;
    }
    if (status == CUDA_SUCCESS) {
        *granularity = SIM_GRANULE_BYTES;
    }
    return status;
}

static struct sim_team *new_team(const CUmulticastObjectProp *prop)
{
    const int fd = memfd_create("simgpu-multicast", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(struct team_file)) != 0) {
        if (fd >= 0) {
            close(fd);
        }
        return NULL;
    }
    struct sim_team *team = team_of(fd);
    if (team) {
        team->file->magic = TEAM_MAGIC;
        team->file->bytes = prop->size;
        team->file->wanted = prop->numDevices;
        team->file->handle_types = (uint32_t)prop->handleTypes;
    }
    return team;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *mcHandle,
                           const CUmulticastObjectProp *prop)
{
    SIM_ENTER(cuMulticastCreate);
    const CUresult status = check_properties(prop);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (!mcHandle || !is_granular(prop->size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_team *team = new_team(prop);
    struct sim_chunk *object = team ? sim_object_new(&sim_chunks) : NULL;
    if (!object) {
        if (team) {
            sim_team_end(team);
        }
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    object->team = team;
    object->bytes = prop->size;
    object->properties = properties_of(team->file);
    object->imported_fd = -1;
    object->handles = 1;
    *mcHandle = sim_chunk_handle(object);
    return CUDA_SUCCESS;
}

/* NULL: it is no multicast object. */
static struct sim_chunk *object_of(CUmemGenericAllocationHandle handle)
{
    struct sim_chunk *object = sim_chunk_of(handle);
    return object && object->team ? object : NULL;
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle mcHandle, CUdevice dev)
{
    SIM_ENTER(cuMulticastAddDevice);
    const struct sim_chunk *object = object_of(mcHandle);
    const struct sim_device *device = sim_device_of(dev);
    if (!sim_settings.multicast) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!device) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!object || is_whole(object->team) || sim_team_has(object->team, device)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    atomic_fetch_or(&object->team->file->added, UINT64_C(1) << device->index);
    sim_announce_progress();
    return CUDA_SUCCESS;
}

static bool is_free(const struct sim_team *team, const struct binding *wanted)
{
    for (const struct binding *other = team->bindings; other; other = other->next) {
        if (other->device == wanted->device && other->offset < wanted->offset + wanted->bytes &&
            wanted->offset < other->offset + other->bytes) {
            return false;
        }
    }
    return true;
}

/* Of memory [from, from + bytes). */
static CUresult bind_memory(struct sim_chunk *object, struct sim_chunk *memory, uint64_t from,
                            const struct binding *wanted)
{
    const bool shared = object->properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
    if (memory->team || wanted->bytes == 0 || !is_granular(wanted->bytes) ||
        !is_granular(wanted->offset) || !is_granular(from) || wanted->bytes > memory->bytes ||
        from > memory->bytes - wanted->bytes || wanted->bytes > object->bytes ||
        wanted->offset > object->bytes - wanted->bytes ||
        (shared && memory->properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_team_await(object->team);
    if (!sim_team_has(object->team, wanted->device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    struct binding *binding = is_free(object->team, wanted) ? malloc(sizeof *binding) : NULL;
    if (!binding) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *binding = *wanted;
    binding->next = object->team->bindings;
    binding->memory = memory;
    object->team->bindings = binding;
    memory->object.references++;
    return CUDA_SUCCESS;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                            CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
                            unsigned long long flags)
{
    SIM_ENTER(cuMulticastBindMem);
    if (!sim_settings.multicast) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    struct sim_chunk *object = object_of(mcHandle), *memory = sim_chunk_of(memHandle);
    if (!object || !memory || flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const struct binding wanted = {.device = memory->device, .offset = mcOffset, .bytes = size};
    return bind_memory(object, memory, memOffset, &wanted);
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                             CUdeviceptr memptr, size_t size, unsigned long long flags)
{
    SIM_ENTER(cuMulticastBindAddr);
    if (!sim_settings.multicast) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    struct sim_chunk *object = object_of(mcHandle);
    const struct sim_mapping *mapping = sim_mapping_at(memptr);
    if (!object || !mapping || flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const struct binding wanted = {
        .device = mapping->chunk->device, .offset = mcOffset, .bytes = size};
    return bind_memory(object, mapping->chunk, memptr - (CUdeviceptr)mapping->address, &wanted);
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
                           size_t size)
{
    SIM_ENTER(cuMulticastUnbind);
    if (!sim_settings.multicast) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    struct sim_chunk *object = object_of(mcHandle);
    const struct sim_device *device = sim_device_of(dev);
    if (!device) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    struct binding **at = object ? &object->team->bindings : NULL;
    while (at && *at &&
           ((*at)->device != device || (*at)->offset != mcOffset || (*at)->bytes != size)) {
        at = &(*at)->next;
    }
    if (!at || !*at) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    unbind(at);
    return CUDA_SUCCESS;
}
