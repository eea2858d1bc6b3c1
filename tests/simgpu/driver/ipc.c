/* SPDX-License-Identifier: Apache-2.0 */
/* Memory, pools and events of other processes. See ipc.h. */
#include "ipc.h"

#include "context.h"
#include "device.h"
#include "entry.h"
#include "event.h"
#include "memory.h"
#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES   4096ull
#define MEMORY_MAGIC 0x5349504dull
#define EVENT_MAGIC  0x53495045ull
#define POOL_MAGIC   0x5349504cull
#define EVENT_SLOTS  4096

/* The contents of a handle's 64 opaque bytes. */
struct handle {
    uint64_t magic;
    int32_t pid, fd;
    uint64_t offset, bytes; /* of memory: in the file; of an event: its slot */
    int32_t device;
};

#define OPAQUE_BYTES 64 /* of the driver's handles */
_Static_assert(sizeof(struct handle) <= OPAQUE_BYTES, "a handle fits");

static int open_foreign(const struct handle *handle)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)handle->pid, (int)handle->fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

/* ---- memory -------------------------------------------------------------------------------------
 */

static struct handle handle_of(const struct sim_range *range)
{
    return (struct handle){.magic = MEMORY_MAGIC,
                           .pid = getpid(),
                           .fd = range->device->backing.fd,
                           .offset = (uint64_t)(range->address - range->device->arena),
                           .bytes = range->bytes,
                           .device = range->device->index};
}

/* opaque: the 64 bytes of the driver's own handles. */
static void put_handle(const struct sim_range *range, char opaque[OPAQUE_BYTES])
{
    struct handle handle = handle_of(range);
    memset(opaque, 0, OPAQUE_BYTES);
    memcpy(opaque, &handle, sizeof handle);
}

static uint64_t key_of(const struct handle *handle)
{
    return (1ull << 63 | (uint64_t)handle->pid << 40) ^ handle->offset;
}

/* Only memory of cuMemAlloc has such handles; the driver refuses mapped memory (vllm#42609). */
CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    SIM_JUDGE(pHandle && dptr, CUDA_ERROR_INVALID_VALUE);
    SIM_ENTER(cuIpcGetMemHandle);
    SIM_CURRENT(context);
    (void)context;
    const struct sim_range *range = sim_range_at(dptr);
    if (!range || range->kind != SIM_RANGE_DEVICE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    _Static_assert(sizeof pHandle->reserved == OPAQUE_BYTES, "all of it is written");
    put_handle(range, pHandle->reserved);
    return CUDA_SUCCESS;
}

/* The same memory opened twice in a context has one address (cuda.h, cuIpcOpenMemHandle). */
static struct sim_range *find_open(CUcontext context, uint64_t key)
{
    struct sim_range *range = context->ranges;
    while (range && !(range->kind == SIM_RANGE_IPC && range->id == key)) {
        range = range->next;
    }
    return range;
}

static CUresult map_foreign(const struct handle *handle, CUcontext context, uint64_t key,
                            struct sim_range **result)
{
    uint64_t skew = handle->offset % PAGE_BYTES;
    uint64_t length = (handle->bytes + skew + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    int fd = open_foreign(handle);
    if (fd < 0) {
        return CUDA_ERROR_MAP_FAILED;
    }
    char *mapped = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
                        (off_t)(handle->offset - skew));
    close(fd);
    if (mapped == MAP_FAILED) {
        return CUDA_ERROR_MAP_FAILED;
    }
    struct sim_range *range =
        sim_range_new(SIM_RANGE_IPC, mapped + skew, handle->bytes, context->device, context);
    if (!range) {
        munmap(mapped, length);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range->occupied = length;
    range->id = key;
    *result = range;
    return CUDA_SUCCESS;
}

static CUresult open_memory(CUdeviceptr *result, CUipcMemHandle opaque, unsigned flags)
{
    SIM_CURRENT(context);
    struct handle handle;
    memcpy(&handle, opaque.reserved, sizeof handle);
    if (!result || handle.magic != MEMORY_MAGIC || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (handle.pid == getpid()) {
        return CUDA_ERROR_INVALID_CONTEXT; /* the process that made it may not open it */
    }
    struct sim_range *range = find_open(context, key_of(&handle));
    CUresult status = range ? CUDA_SUCCESS : map_foreign(&handle, context, key_of(&handle), &range);
    if (status == CUDA_SUCCESS) {
        range->imports++;
        *result = (CUdeviceptr)range->address;
    }
    return status;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    SIM_ENTER(cuIpcOpenMemHandle);
    return open_memory(pdptr, handle, Flags);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    SIM_ENTER(cuIpcOpenMemHandle_v2);
    return open_memory(pdptr, handle, Flags);
}

bool sim_ipc_is_of_pool(const struct sim_range *range)
{
    return range->kind == SIM_RANGE_IPC && range->pool;
}

void sim_ipc_close(struct sim_range *range)
{
    if (--range->imports == 0) {
        sim_range_free(range);
    }
}

void sim_ipc_unmap(struct sim_range *range)
{
    if (range->pool) {
        range->pool->live_ranges--;
        sim_pool_release_destroyed(range->pool);
    }
    munmap((char *)((uintptr_t)range->address & ~(uintptr_t)(PAGE_BYTES - 1)), range->occupied);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    SIM_ENTER(cuIpcCloseMemHandle);
    SIM_CURRENT(context);
    (void)context;
    struct sim_range *range = sim_range_at(dptr);
    if (!range || range->kind != SIM_RANGE_IPC || range->pool ||
        (CUdeviceptr)range->address != dptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_ipc_close(range);
    return CUDA_SUCCESS;
}

/* ---- pools --------------------------------------------------------------------------------------
 */

/* The descriptor is a file that has a handle of the device's memory. */
CUresult cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool,
                                          CUmemAllocationHandleType handleType,
                                          unsigned long long flags)
{
    SIM_ENTER(cuMemPoolExportToShareableHandle);
    if (!sim_pool_is(pool) || !handle_out || flags || pool->exporter != 0 ||
        handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !((unsigned)pool->properties.handleTypes & (unsigned)handleType)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct handle handle = {.magic = POOL_MAGIC, .pid = getpid(), .device = pool->device->index};
    int fd = memfd_create("simgpu-pool", MFD_CLOEXEC);
    if (fd < 0 || write(fd, &handle, sizeof handle) != sizeof handle) {
        if (fd >= 0) {
            close(fd);
        }
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *(int *)handle_out = fd;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                            CUmemAllocationHandleType handleType,
                                            unsigned long long flags)
{
    SIM_ENTER(cuMemPoolImportFromShareableHandle);
    if (!pool_out || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct handle of = {0};
    ssize_t got = pread((int)(intptr_t)handle, &of, sizeof of, 0);
    if (got < 0 && errno == EBADF) {
        return CUDA_ERROR_UNKNOWN; /* seen: an H200, driver 580 */
    }
    struct sim_device *device = of.magic == POOL_MAGIC ? sim_device_of(of.device) : NULL;
    if (got != sizeof of || !device) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUmemoryPool pool = sim_pool_new(device);
    if (!pool) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pool->exporter = of.pid;
    *pool_out = pool;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
    SIM_ENTER(cuMemPoolExportPointer);
    const struct sim_range *range = sim_range_at(ptr);
    if (!shareData_out || !range || range->kind != SIM_RANGE_POOL ||
        range->pool->properties.handleTypes == CU_MEM_HANDLE_TYPE_NONE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    _Static_assert(sizeof shareData_out->reserved == OPAQUE_BYTES, "all of it is written");
    put_handle(range, (char *)shareData_out->reserved);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool,
                                CUmemPoolPtrExportData *shareData)
{
    SIM_ENTER(cuMemPoolImportPointer);
    struct handle handle = {0};
    if (!ptr_out || !sim_pool_is(pool) || !shareData) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(&handle, shareData->reserved, sizeof handle);
    if (handle.magic != MEMORY_MAGIC || handle.pid != pool->exporter) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    SIM_CURRENT(context);
    struct sim_range *range = find_open(context, key_of(&handle));
    if (!range) {
        CUresult status = map_foreign(&handle, context, key_of(&handle), &range);
        if (status != CUDA_SUCCESS) {
            return status;
        }
        range->pool = pool;
        pool->live_ranges++;
    }
    range->imports++;
    *ptr_out = (CUdeviceptr)range->address;
    return CUDA_SUCCESS;
}

/* ---- events
 * -------------------------------------------------------------------------------------- */

struct slot {
    _Atomic uint64_t recorded, reached; /* numbers of the latest record made, and of the latest
                                           reached */
};

struct sim_ipc_event {
    struct slot *slots; /* the mapped file */
    uint32_t index;
    bool foreign;
};

static int own_fd = -1;
static struct slot *own_slots;
static uint32_t free_slots[EVENT_SLOTS];
static uint32_t free_count, next_slot;

static bool open_own_file(void)
{
    if (own_slots) {
        return true;
    }
    own_fd = memfd_create("simgpu-events", MFD_CLOEXEC);
    if (own_fd < 0 || ftruncate(own_fd, EVENT_SLOTS * sizeof(struct slot)) != 0) {
        return false;
    }
    void *mapped = mmap(NULL, EVENT_SLOTS * sizeof(struct slot), PROT_READ | PROT_WRITE, MAP_SHARED,
                        own_fd, 0);
    own_slots = mapped == MAP_FAILED ? NULL : mapped;
    return own_slots != NULL;
}

bool sim_ipc_event_open(CUevent event)
{
    if (!open_own_file() || (free_count == 0 && next_slot == EVENT_SLOTS)) {
        return false;
    }
    event->shared = calloc(1, sizeof *event->shared);
    if (event->shared) {
        event->shared->slots = own_slots;
        event->shared->index = free_count ? free_slots[--free_count] : next_slot++;
        struct slot *slot = &own_slots[event->shared->index];
        atomic_store(&slot->recorded, 0);
        atomic_store(&slot->reached, 0);
    }
    return event->shared != NULL;
}

void sim_ipc_event_close(CUevent event)
{
    if (event->shared->foreign) {
        munmap(event->shared->slots, EVENT_SLOTS * sizeof(struct slot));
    } else {
        free_slots[free_count++] = event->shared->index;
    }
    free(event->shared);
    event->shared = NULL;
}

uint64_t sim_ipc_event_recorded(struct sim_ipc_event *event)
{
    return atomic_fetch_add(&event->slots[event->index].recorded, 1) + 1;
}

void sim_ipc_event_reached(struct sim_ipc_event *event, uint64_t version)
{
    struct slot *slot = &event->slots[event->index];
    uint64_t now = atomic_load(&slot->reached);
    while (now < version && !atomic_compare_exchange_weak(&slot->reached, &now, version)) {
        /* another stream is further: `now` has that number */
    }
}

uint64_t sim_ipc_event_latest(const struct sim_ipc_event *event)
{
    return atomic_load(&event->slots[event->index].recorded);
}

bool sim_ipc_event_reached_version(const struct sim_ipc_event *event, uint64_t version)
{
    return atomic_load(&event->slots[event->index].reached) >= version;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
    SIM_ENTER(cuIpcGetEventHandle);
    CUresult status = sim_event_check(event);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    /* "must have been created with the CU_EVENT_INTERPROCESS flag" (cuda.h). */
    if (!pHandle || !event->shared || event->shared->foreign) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct handle handle = {.magic = EVENT_MAGIC,
                            .pid = getpid(),
                            .fd = own_fd,
                            .offset = event->shared->index,
                            .device = event->context->device->index};
    memset(pHandle, 0, sizeof *pHandle);
    memcpy(pHandle->reserved, &handle, sizeof handle);
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle opaque)
{
    SIM_ENTER(cuIpcOpenEventHandle);
    SIM_CURRENT(context);
    struct handle handle;
    memcpy(&handle, opaque.reserved, sizeof handle);
    if (!phEvent || handle.magic != EVENT_MAGIC || handle.offset >= EVENT_SLOTS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (handle.pid == getpid()) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    int fd = open_foreign(&handle);
    void *mapped = fd < 0 ? MAP_FAILED
                          : mmap(NULL, EVENT_SLOTS * sizeof(struct slot), PROT_READ | PROT_WRITE,
                                 MAP_SHARED, fd, 0);
    if (fd >= 0) {
        close(fd);
    }
    CUevent event = mapped == MAP_FAILED ? NULL : sim_event_new(context);
    struct sim_ipc_event *shared = event ? calloc(1, sizeof *shared) : NULL;
    if (!shared) {
        if (event) {
            sim_event_destroy(event);
        }
        return mapped == MAP_FAILED ? CUDA_ERROR_MAP_FAILED : CUDA_ERROR_OUT_OF_MEMORY;
    }
    *shared = (struct sim_ipc_event){mapped, (uint32_t)handle.offset, true};
    event->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    event->shared = shared;
    *phEvent = event;
    return CUDA_SUCCESS;
}
