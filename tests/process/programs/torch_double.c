/* SPDX-License-Identifier: Apache-2.0 */
/* Built as libc10_cuda.so, without tail calls, so that the driver's functions return into it. */
#include "torch_double.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

void report_memory(
    void *at, int64_t bytes, size_t allocated, size_t reserved,
    uint16_t device) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");

/* On all machines; headers before Linux 5.6 have no names for them. */
enum { SYS_PIDFD_OPEN = 434, SYS_PIDFD_GETFD = 438 };

static _Atomic size_t live[16];

const char *torch_settings(void)
{
    return getenv("PYTORCH_CUDA_ALLOC_CONF");
}

CUresult torch_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                      const CUmemAllocationProp *prop)
{
    return cuMemCreate(handle, bytes, prop, 0);
}

CUresult torch_map(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle)
{
    return cuMemMap(at, bytes, offset, handle, 0);
}

CUresult torch_access(CUdeviceptr at, size_t bytes, CUdevice device, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                              .flags = flags};
    return cuMemSetAccess(at, bytes, &access, 1);
}

CUresult torch_unmap(CUdeviceptr at, size_t bytes)
{
    return cuMemUnmap(at, bytes);
}

CUresult torch_release(CUmemGenericAllocationHandle handle)
{
    return cuMemRelease(handle);
}

CUresult torch_retain(CUmemGenericAllocationHandle *handle, CUdeviceptr at)
{
    return cuMemRetainAllocationHandle(handle, (void *)(uintptr_t)at);
}

CUresult torch_export(int *fd, CUmemGenericAllocationHandle handle)
{
    return cuMemExportToShareableHandle(fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

int torch_take(pid_t process, int fd)
{
    const int other = (int)syscall(SYS_PIDFD_OPEN, process, 0);
    const int taken = other >= 0 ? (int)syscall(SYS_PIDFD_GETFD, other, fd, 0) : -1;
    const int error = errno;
    if (other >= 0) {
        (void)close(other);
    }
    errno = error;
    return taken;
}

static void report(CUdevice device, CUdeviceptr at, int64_t bytes, size_t error)
{
    size_t total = atomic_fetch_add(&live[device], (size_t)bytes) + (size_t)bytes;
    report_memory((void *)(uintptr_t)at, bytes, total + error, 0, (uint16_t)(device << 8 | 1));
}

void torch_born(CUdevice device, CUdeviceptr at, size_t bytes)
{
    report(device, at, (int64_t)bytes, 0);
}

void torch_died(CUdevice device, CUdeviceptr at, size_t bytes)
{
    report(device, at, -(int64_t)bytes, 0);
}

void torch_born_wrongly(CUdevice device, CUdeviceptr at, size_t bytes)
{
    report(device, at, (int64_t)bytes, 1);
}
