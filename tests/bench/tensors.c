/* SPDX-License-Identifier: Apache-2.0 */
/* Birth + death of a tensor, reported as PyTorch reports it: through two functions of libc10.so
 * that memshim stands in front of. tensors [COUNT]. */
#include "driver.h"
#include "say.h"
#include "timing.h"

#define WARM_UP     200
#define ARENA_BYTES (20 * MIB)
#define BYTES       (96 * KIB)
#define CUDA        1 /* c10::DeviceType::CUDA, in the lower byte; the device's index above */

/* c10::reportMemoryUsageToProfiler(void *, int64_t, size_t, size_t, Device) */
void report_memory(
    void *at, int64_t bytes, size_t allocated, size_t reserved,
    uint16_t device) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");

static void pairs(CUdeviceptr arena, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        void *at = (void *)(uintptr_t)(arena + i % 64 * BYTES);
        report_memory(at, (int64_t)BYTES, BYTES, ARENA_BYTES, CUDA);
        report_memory(at, -(int64_t)BYTES, 0, ARENA_BYTES, CUDA);
    }
}

int main(int argc, char **argv)
{
    uint64_t count = count_argument(argc, argv, 200000);
    CUdevice device;
    CUcontext context;
    CUdeviceptr arena;
    struct driver cu = driver_open();
    MUST(cu.cuInit(0));
    MUST(cu.cuDeviceGet(&device, 0));
    MUST(cu.cuDevicePrimaryCtxRetain(&context, device));
    MUST(cu.cuCtxSetCurrent(context));
    MUST(cu.cuMemAlloc(&arena, ARENA_BYTES));
    pairs(arena, WARM_UP);
    uint64_t start = now_ns();
    pairs(arena, count);
    end_with_each(start, count);
}
