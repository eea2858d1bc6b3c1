/* SPDX-License-Identifier: Apache-2.0 */
/* The driver as NCCL's double uses it: found by dlopen and dlsym, not linked. */
#include "nccl_double.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    CUresult (*init)(unsigned int);
    CUresult (*primary_retain)(CUcontext *, CUdevice);
    CUresult (*context_set_current)(CUcontext);
    CUresult (*context_get_current)(CUcontext *);
    CUresult (*context_get_device)(CUdevice *);
    CUresult (*launch_host)(CUstream, CUhostFn, void *);
    CUresult (*is_capturing)(CUstream, CUstreamCaptureStatus *);
    CUresult (*memory_alloc)(CUdeviceptr *, size_t);
    CUresult (*memory_free)(CUdeviceptr);
    CUresult (*granularity)(size_t *, const CUmemAllocationProp *,
                            CUmemAllocationGranularity_flags);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                       unsigned long long);
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUresult (*address_free)(CUdeviceptr, size_t);
    void (*note_write)(uint64_t, uint64_t);
    void (*note_carried)(uint64_t, uint64_t, uint64_t, uint64_t);
    void (*forget)(uint64_t, uint64_t);
    int (*is_known)(uint64_t, uint64_t);
    int (*launch_as_kernel)(int);
} driver_t;

static driver_t driver;
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;

/* The sizes of mapped allocations, which cuMemUnmap needs. */
typedef struct mapped_t {
    struct mapped_t *next;
    CUdeviceptr at;
    size_t bytes;
} mapped_t;

static mapped_t *mapped_list;
static pthread_mutex_t mapped_lock = PTHREAD_MUTEX_INITIALIZER;

static void find_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        return;
    }
    const struct {
        void *slot;
        const char *name;
    } wanted[] = {
        {&driver.init, "cuInit"},
        {&driver.primary_retain, "cuDevicePrimaryCtxRetain"},
        {&driver.context_set_current, "cuCtxSetCurrent"},
        {&driver.context_get_current, "cuCtxGetCurrent"},
        {&driver.context_get_device, "cuCtxGetDevice"},
        {&driver.launch_host, "cuLaunchHostFunc"},
        {&driver.is_capturing, "cuStreamIsCapturing"},
        {&driver.memory_alloc, "cuMemAlloc_v2"},
        {&driver.memory_free, "cuMemFree_v2"},
        {&driver.granularity, "cuMemGetAllocationGranularity"},
        {&driver.create, "cuMemCreate"},
        {&driver.reserve, "cuMemAddressReserve"},
        {&driver.map, "cuMemMap"},
        {&driver.set_access, "cuMemSetAccess"},
        {&driver.unmap, "cuMemUnmap"},
        {&driver.release, "cuMemRelease"},
        {&driver.address_free, "cuMemAddressFree"},
        {&driver.note_write, "simgpu_note_write"},
        {&driver.note_carried, "simgpu_note_carried"},
        {&driver.forget, "simgpu_forget"},
        {&driver.is_known, "simgpu_is_known"},
        {&driver.launch_as_kernel, "simgpu_launch_as_kernel"},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        void *function = dlsym(library, wanted[i].name);
        memcpy(wanted[i].slot, &function, sizeof(function));
    }
}

static const driver_t *get_driver(void)
{
    pthread_once(&driver_once, find_driver);
    return &driver;
}

static CUresult primary_context(const driver_t *d, CUcontext *context, CUdevice device)
{
    if (!d->init || !d->primary_retain) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    CUresult result = d->init(0);
    return result == CUDA_SUCCESS ? d->primary_retain(context, device) : result;
}

CUresult simnccl_current_device(CUdevice *device)
{
    const driver_t *d = get_driver();
    CUresult result =
        d->context_get_device ? d->context_get_device(device) : CUDA_ERROR_NOT_INITIALIZED;
    if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_NOT_INITIALIZED) {
        CUcontext primary = NULL;
        result = primary_context(d, &primary, 0);
        result = result == CUDA_SUCCESS ? simnccl_enter(primary, NULL) : result;
        *device = 0;
    }
    return result;
}

CUresult simnccl_device_context(CUcontext *context, CUdevice device)
{
    const driver_t *d = get_driver();
    CUdevice current = 0;
    if (d->context_get_device && d->context_get_device(&current) == CUDA_SUCCESS &&
        current == device) {
        return d->context_get_current(context);
    }
    return primary_context(d, context, device);
}

CUresult simnccl_enter(CUcontext context, CUcontext *before)
{
    const driver_t *d = get_driver();
    if (before) {
        *before = NULL;
        d->context_get_current(before);
    }
    return d->context_set_current(context);
}

CUresult simnccl_launch_host(CUstream stream, CUhostFn function, void *argument)
{
    const driver_t *d = get_driver();
    if (!d->launch_host) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    int before = d->launch_as_kernel ? d->launch_as_kernel(1) : 0;
    CUresult result = d->launch_host(stream, function, argument);
    if (d->launch_as_kernel) {
        d->launch_as_kernel(before);
    }
    return result;
}

void simnccl_note_write(const void *at, size_t bytes)
{
    const driver_t *d = get_driver();
    if (d->note_write) {
        d->note_write((uint64_t)at, bytes);
    }
}

void simnccl_note_carried(const void *at, size_t bytes, const void *from, size_t from_bytes)
{
    const driver_t *d = get_driver();
    if (d->note_carried && at) {
        d->note_carried((uint64_t)at, bytes, (uint64_t)from, from_bytes);
    }
}

void simnccl_note_lost(const void *at, size_t bytes)
{
    const driver_t *d = get_driver();
    if (d->forget && at) {
        d->forget((uint64_t)at, bytes);
    }
}

bool simnccl_is_known(const void *at, size_t bytes)
{
    const driver_t *d = get_driver();
    return d->is_known && at && d->is_known((uint64_t)at, bytes);
}

bool simnccl_is_capturing(CUstream stream)
{
    const driver_t *d = get_driver();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return d->is_capturing && d->is_capturing(stream, &status) == CUDA_SUCCESS &&
           status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static CUresult map_new(const driver_t *d, mapped_t *mapped, size_t bytes, CUdevice device)
{
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    CUmemAccessDesc access = {
        .location = properties.location,
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    size_t granule_bytes = 0;
    CUresult result =
        d->granularity(&granule_bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (result != CUDA_SUCCESS || granule_bytes == 0) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_NOT_SUPPORTED;
    }
    mapped->bytes = (bytes + granule_bytes - 1) / granule_bytes * granule_bytes;
    CUmemGenericAllocationHandle handle = 0;
    result = d->create(&handle, mapped->bytes, &properties, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = d->reserve(&mapped->at, mapped->bytes, 0, 0, 0);
    if (result == CUDA_SUCCESS) {
        result = d->map(mapped->at, mapped->bytes, 0, handle, 0);
        if (result == CUDA_SUCCESS) {
            result = d->set_access(mapped->at, mapped->bytes, &access, 1);
            if (result != CUDA_SUCCESS) {
                d->unmap(mapped->at, mapped->bytes);
            }
        }
        if (result != CUDA_SUCCESS) {
            d->address_free(mapped->at, mapped->bytes);
        }
    }
    /* The mapping keeps the memory; after a failure this frees it. */
    d->release(handle);
    return result;
}

CUresult simnccl_device_alloc(CUdeviceptr *at, size_t bytes, CUdevice device)
{
    const driver_t *d = get_driver();
    mapped_t *mapped = calloc(1, sizeof(*mapped));
    if (!mapped || !d->memory_alloc) {
        free(mapped);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = d->create ? map_new(d, mapped, bytes, device) : CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        free(mapped);
        return d->memory_alloc(at, bytes);
    }
    if (result != CUDA_SUCCESS) {
        free(mapped);
        return result;
    }
    *at = mapped->at;
    pthread_mutex_lock(&mapped_lock);
    mapped->next = mapped_list;
    mapped_list = mapped;
    pthread_mutex_unlock(&mapped_lock);
    return CUDA_SUCCESS;
}

CUresult simnccl_device_free(CUdeviceptr at)
{
    const driver_t *d = get_driver();
    pthread_mutex_lock(&mapped_lock);
    mapped_t **link = &mapped_list;
    while (*link && (*link)->at != at) {
        link = &(*link)->next;
    }
    mapped_t *mapped = *link;
    if (mapped) {
        *link = mapped->next;
    }
    pthread_mutex_unlock(&mapped_lock);
    if (!mapped) {
        return d->memory_free(at);
    }
    CUresult result = d->unmap(at, mapped->bytes);
    if (result == CUDA_SUCCESS) {
        result = d->address_free(at, mapped->bytes);
    }
    free(mapped);
    return result;
}
