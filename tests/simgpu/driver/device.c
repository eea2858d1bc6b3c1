/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated devices. See device.h. */
#include "device.h"

#include "../simgpu.h"
#include "context.h"
#include "entry.h"
#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SMALL_UNIT_BYTES 512ull
#define SMALL_MAX_BYTES  (1ull << 20)
#define CHUNK_SPACE      (1ull << 44)
#define SPARE_BYTES      (64ull << 30)
#define FILE_BYTES       (1ull << 52) /* labels of exported chunks lie after the chunks */

struct sim_device sim_devices[SIM_MAX_DEVICES];
struct sim_backing sim_host_backing = {.fd = -1};

struct sim_device *sim_device_of(CUdevice device)
{
    return device >= 0 && device < (int)sim_settings.devices ? &sim_devices[device] : NULL;
}

void sim_note_asked(int ordinal)
{
    static bool said;
    char path[PATH_MAX], line[32];
    if (said || ordinal < (int)sim_settings.devices || !*sim_settings.shared ||
        snprintf(path, sizeof path, "%s.asked", sim_settings.shared) >= (int)sizeof path) {
        return;
    }
    int length = snprintf(line, sizeof line, "device %d\n", ordinal);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file >= 0) {
        said = write(file, line, (size_t)length) == length;
        close(file);
    }
}

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static CUresult open_backing(struct sim_backing *backing, const char *name, uint64_t arena_bytes)
{
    backing->fd = memfd_create(name, MFD_CLOEXEC);
    if (backing->fd < 0 || ftruncate(backing->fd, (off_t)FILE_BYTES) != 0 ||
        !sim_extents_give(&backing->chunks, arena_bytes, CHUNK_SPACE, NULL, NULL)) {
        fprintf(stderr, "simgpu: no memory file for %s: %s\n", name, strerror(errno));
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    return CUDA_SUCCESS;
}

static CUresult create_device(struct sim_device *device, int index)
{
    char name[32];
    device->index = index;
    memcpy(device->uuid.bytes, "simgpu-device-0\0", 16);
    device->uuid.bytes[14] = (char)('a' + index);
    /* A version 4 UUID, as nvidia-smi prints them: tools parse it. */
    device->uuid.bytes[6] = 0x40;
    device->uuid.bytes[8] = (char)0x80;
    snprintf(device->pci_id, sizeof device->pci_id, "0000:%02X:00.0", index + 1);
    /* The arena gets so many addresses that its fragmentation never makes an allocation fail. A
     * small device gets fewer, so that it also works under valgrind, which has few. */
    uint64_t spare = sim_settings.memory_bytes * 64;
    device->arena_bytes = round_up(
        sim_settings.memory_bytes * 16 + (spare < SPARE_BYTES ? spare : SPARE_BYTES), 1ull << 30);
    snprintf(name, sizeof name, "simgpu-device-%d", index);
    CUresult status = open_backing(&device->backing, name, device->arena_bytes);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    char *arena = mmap(NULL, device->arena_bytes, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_NORESERVE, device->backing.fd, 0);
    if (arena == MAP_FAILED) {
        fprintf(stderr, "simgpu: no addresses for device %d: %s\n", index, strerror(errno));
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    madvise(arena, device->arena_bytes, MADV_DONTDUMP);
    uint64_t skew = round_up((uint64_t)arena, SIM_GRANULE_BYTES) - (uint64_t)arena;
    device->arena = arena;
    return sim_extents_give(&device->arena_free, skew, device->arena_bytes - SIM_GRANULE_BYTES,
                            NULL, NULL)
               ? CUDA_SUCCESS
               : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult sim_devices_create(void)
{
    sim_settings_of_child();
    sim_account_open();
    CUresult status = open_backing(&sim_host_backing, "simgpu-host", 0);
    for (int i = 0; i < (int)sim_settings.devices && status == CUDA_SUCCESS; i++) {
        status = create_device(&sim_devices[i], i);
    }
    return status;
}

void sim_backing_discard(const struct sim_backing *backing, uint64_t offset, uint64_t bytes)
{
    /* A file system that cannot punch holes keeps the bytes: that costs host memory, and changes no
     * result. */
    (void)fallocate(backing->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                    (off_t)bytes);
}

static CUresult take_granules(struct sim_device *device, uint64_t bytes, uint64_t *offset)
{
    CUresult status = sim_account_charge(device->index, bytes);
    if (status == CUDA_SUCCESS && !sim_extents_take(&device->arena_free, bytes, 1, offset)) {
        sim_account_uncharge(device->index, bytes);
        status = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return status;
}

static void give_granules(struct sim_device *device, uint64_t offset, uint64_t bytes)
{
    sim_backing_discard(&device->backing, offset, bytes);
    sim_extents_give(&device->arena_free, offset, bytes, NULL, NULL);
    sim_account_uncharge(device->index, bytes);
}

/* Granules of the arena start at the first granule-aligned address, not at offset 0. */
static uint64_t granule_floor(const struct sim_device *device, uint64_t offset)
{
    uint64_t base = (uint64_t)device->arena;
    return ((base + offset) & ~(SIM_GRANULE_BYTES - 1)) - base;
}

CUresult sim_arena_alloc(struct sim_device *device, uint64_t bytes, char **address,
                         uint64_t *occupied_bytes)
{
    if (bytes > sim_settings.memory_bytes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    uint64_t offset = 0;
    if (bytes > SMALL_MAX_BYTES) {
        *occupied_bytes = round_up(bytes, SIM_GRANULE_BYTES);
        CUresult status = take_granules(device, *occupied_bytes, &offset);
        *address = device->arena + offset;
        return status;
    }
    *occupied_bytes = round_up(bytes, SMALL_UNIT_BYTES);
    if (!sim_extents_take(&device->small_free, *occupied_bytes, 1, &offset)) {
        CUresult status = take_granules(device, SIM_GRANULE_BYTES, &offset);
        if (status != CUDA_SUCCESS) {
            return status;
        }
        sim_extents_give(&device->small_free, offset, SIM_GRANULE_BYTES, NULL, NULL);
        sim_extents_carve(&device->small_free, offset, *occupied_bytes);
    }
    *address = device->arena + offset;
    return CUDA_SUCCESS;
}

void sim_arena_free(struct sim_device *device, char *address, uint64_t occupied_bytes)
{
    uint64_t offset = (uint64_t)(address - device->arena);
    if (occupied_bytes > SMALL_MAX_BYTES) {
        give_granules(device, offset, occupied_bytes);
        return;
    }
    uint64_t free_offset, free_bytes;
    if (!sim_extents_give(&device->small_free, offset, occupied_bytes, &free_offset, &free_bytes)) {
        return;
    }
    uint64_t first = granule_floor(device, free_offset + SIM_GRANULE_BYTES - 1);
    uint64_t last = granule_floor(device, free_offset + free_bytes);
    if (first < last) {
        sim_extents_carve(&device->small_free, first, last - first);
        give_granules(device, first, last - first);
    }
}

CUresult sim_arena_reserve(struct sim_device *device, uint64_t bytes, char **address)
{
    uint64_t offset;
    if (!sim_extents_take(&device->arena_free, bytes, 1, &offset)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = device->arena + offset;
    return CUDA_SUCCESS;
}

void sim_arena_unreserve(struct sim_device *device, char *address, uint64_t bytes)
{
    uint64_t offset = (uint64_t)(address - device->arena);
    sim_backing_discard(&device->backing, offset, bytes);
    sim_extents_give(&device->arena_free, offset, bytes, NULL, NULL);
}

uint64_t simgpu_used_bytes(int device)
{
    sim_lock();
    uint64_t used = sim_device_of(device) ? sim_account_used_here(device) : UINT64_MAX;
    sim_unlock();
    return used;
}

uint64_t simgpu_used_bytes_all(int device)
{
    return sim_device_of(device) ? sim_account_used_by_living(device) : UINT64_MAX;
}

uint64_t simgpu_host_bytes(int device)
{
    struct stat file;
    if (!sim_device_of(device) || fstat(sim_devices[device].backing.fd, &file) != 0) {
        return UINT64_MAX;
    }
    return (uint64_t)file.st_blocks * 512;
}

/* ---- the device functions of the driver API ----------------------------------------------- */

#define SIM_DEVICE_OF(handle, variable)                  \
    struct sim_device *variable = sim_device_of(handle); \
    if (!variable) {                                     \
        return CUDA_ERROR_INVALID_DEVICE;                \
    }                                                    \
    _Static_assert(1, "")

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    SIM_ENTER(cuDeviceGet);
    sim_note_asked(ordinal);
    SIM_DEVICE_OF(ordinal, found);
    if (!device) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *device = found->index;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    SIM_ENTER(cuDeviceGetCount);
    if (!count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *count = (int)sim_settings.devices;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
    SIM_ENTER(cuDeviceGetName);
    SIM_DEVICE_OF(dev, device);
    if (!name || len <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    (void)device;
    snprintf(name, (size_t)len, "%s", sim_settings.name);
    return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice dev)
{
    SIM_DEVICE_OF(dev, device);
    if (!uuid) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *uuid = device->uuid;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    SIM_ENTER(cuDeviceGetUuid);
    return get_uuid(uuid, dev);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    SIM_ENTER(cuDeviceGetUuid_v2);
    return get_uuid(uuid, dev);
}

CUresult cuDeviceGetLuid(char *luid, unsigned int *deviceNodeMask, CUdevice dev)
{
    SIM_ENTER(cuDeviceGetLuid);
    SIM_DEVICE_OF(dev, device);
    (void)device;
    return CUDA_ERROR_NOT_SUPPORTED; /* only on Windows */
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    SIM_ENTER(cuDeviceTotalMem_v2);
    SIM_DEVICE_OF(dev, device);
    (void)device;
    if (!bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *bytes = sim_settings.memory_bytes;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
    SIM_ENTER(cuDeviceGetByPCIBusId);
    unsigned domain = 0, bus, slot, function = 0;
    if (!dev || !pciBusId) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* [domain]:[bus]:[device].[function], [domain]:[bus]:[device] or [bus]:[device].[function] */
    if (sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = function = 0;
        if (sscanf(pciBusId, "%x:%x.%x", &bus, &slot, &function) != 3) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    if (domain || slot || function || !sim_device_of((CUdevice)bus - 1)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *dev = (CUdevice)bus - 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    SIM_ENTER(cuDeviceGetPCIBusId);
    SIM_DEVICE_OF(dev, device);
    if (!pciBusId || len <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    snprintf(pciBusId, (size_t)len, "%s", device->pci_id);
    return CUDA_SUCCESS;
}
