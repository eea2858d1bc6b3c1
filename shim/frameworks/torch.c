/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch reports every tensor to its profiler through two plain functions of libc10. libc10_cuda
 * calls them through its PLT, and the global scope is searched first, so it reaches the functions
 * of those names here. They take note and call the real ones.
 *
 * The C++ declarations (c10/core/Allocator.h):
 *   void c10::reportMemoryUsageToProfiler(void *ptr, int64_t alloc_size, size_t total_allocated,
 *                                         size_t total_reserved, Device device);
 *   void c10::reportOutOfMemoryToProfiler(int64_t alloc_size, size_t total_allocated,
 *                                         size_t total_reserved, Device device);
 * Device is two signed bytes, type and index, which both ABIs (x86-64, aarch64) pass in one integer
 * register. PyTorch holds its allocator's lock meanwhile. */
#include "shim/frameworks/torch.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "shim/device/device.h"
#include "shim/driver/elf.h"
#include "shim/driver/resolve.h"
#include "shim/driver/torch_library.h"
#include "shim/hooks/serve.h"
#include "shim/policy/oom.h"
#include "shim/process/hot.h"
#include "shim/process/log.h"
#include "shim/tables/options.h"

#define USAGE         MS_TORCH_USAGE
#define OUT_OF_MEMORY MS_TORCH_OUT_OF_MEMORY

typedef uint16_t torch_device_t;
#define TORCH_CUDA 1 /* c10::DeviceType::CUDA */

typedef void (*usage_t)(void *, int64_t, size_t, size_t, torch_device_t);
typedef void (*out_of_memory_t)(int64_t, size_t, size_t, torch_device_t);

__attribute__((visibility("default"))) void USAGE(void *ptr, int64_t bytes, size_t total_allocated,
                                                  size_t total_reserved, torch_device_t device);
__attribute__((visibility("default"))) void
OUT_OF_MEMORY(int64_t bytes, size_t total_allocated, size_t total_reserved, torch_device_t device);

MS_HOT_DATA static _Atomic bool settled; /* reports count from now on */

static int ordinal_in(torch_device_t device)
{
    return (int8_t)(device >> 8);
}

/* The ordinal if the report counts, otherwise -1. */
static __attribute__((noinline, cold)) int first_ordinal(torch_device_t device)
{
    bool found = ms_torch_library_find();
    if ((device & 0xff) != TORCH_CUDA) {
        return -1;
    }
    if (ms_options()->torch == MS_TORCH_OFF) {
        ms_torch_library_reported(); /* tensors do not count, an out-of-memory will */
        return -1;
    }
    if (atomic_load_explicit(&ms_real_published, memory_order_acquire) == &ms_real_none) {
        MS_LOG_ONCE(MS_LOG_WARN, "PyTorch uses a device in a way that bypasses memshim: "
                                 "nothing is capped");
        return -1;
    }
    ms_torch_library_reported();
    atomic_store_explicit(&settled, found, memory_order_release);
    return ordinal_in(device);
}

static inline int cuda_ordinal(torch_device_t device)
{
    if (__builtin_expect(!atomic_load_explicit(&settled, memory_order_acquire), 0)) {
        return first_ordinal(device);
    }
    return (device & 0xff) == TORCH_CUDA ? ordinal_in(device) : -1;
}

MS_HOT void USAGE(void *ptr, int64_t bytes, size_t total_allocated, size_t total_reserved,
                  torch_device_t device)
{
    int ordinal = cuda_ordinal(device);
    if (ordinal >= 0 && ms_guard_enter_here()) {
        if (bytes < 0) {
            ms_serve_died(ordinal, ptr, -(uint64_t)bytes, total_allocated);
        } else if (bytes > 0) {
            ms_serve_born(ordinal, ptr, (uint64_t)bytes, total_allocated);
            ms_oom_tensor_served();
        }
        ms_guard_leave();
    }
    usage_t real = (usage_t)atomic_load_explicit(&ms_torch_library.usage, memory_order_relaxed);
    if (real != NULL) {
        real(ptr, bytes, total_allocated, total_reserved, device);
    }
}

void OUT_OF_MEMORY(int64_t bytes, size_t total_allocated, size_t total_reserved,
                   torch_device_t device)
{
    int ordinal = cuda_ordinal(device);
    uint64_t cached_bytes = 0;
    /* In that mode, this report is the only one that counts: why PyTorch ran out of memory. */
    if (ms_options()->torch == MS_TORCH_OFF && (device & 0xff) == TORCH_CUDA) {
        ordinal = ordinal_in(device);
        cached_bytes = total_reserved > total_allocated ? total_reserved - total_allocated : 0;
    }
    if (ordinal >= 0 && bytes > 0 && ms_guard_enter_here()) {
        ms_oom_from_torch(ordinal, (uint64_t)bytes, cached_bytes);
        ms_guard_leave();
    }
    out_of_memory_t real = (out_of_memory_t)atomic_load_explicit(&ms_torch_library.out_of_memory,
                                                                 memory_order_relaxed);
    if (real != NULL) {
        real(bytes, total_allocated, total_reserved, device);
    }
}

static bool anything_allocated(void)
{
    for (int ordinal = 0; ordinal < MS_DEVICES_MAX; ordinal++) {
        const struct ms_device *device = ms_device_get(ordinal);
        struct ms_pool_stats stats = {0};
        if (device != NULL && device->pool != NULL) {
            ms_pool_stats(device->pool, &stats);
        }
        if (stats.allocations > 0) {
            return true;
        }
    }
    return false;
}

void ms_torch_end(void)
{
    struct ms_loaded_elf elf;
    if (ms_options()->torch == MS_TORCH_NATIVE && !ms_torch_library_reports() &&
        ms_elf_loaded("libc10_cuda.so", &elf) && anything_allocated()) {
        ms_log(MS_LOG_WARN,
               "PyTorch reported no tensor: either its allocator is one that does not "
               "report (backend:cudaMallocAsync, a pluggable one), or this PyTorch lacks "
               "the functions for it. The report shows segments only");
    }
}
