/* SPDX-License-Identifier: Apache-2.0 */
/* A range of two chunks side by side, each either of the device's memory or of the host's. See
 * mixed.h. */
#include "tests/gpu/mixed.h"

bool mixed_open(const struct gpu *gpu, struct mixed *mixed)
{
    CUmemAllocationProp props[LOCATIONS];
    size_t host_granule = 0;
    if (gpu->granule_bytes == 0 || gpu_host_memory(gpu, &props[ON_HOST]) != 0) {
        return false;
    }
    props[ON_DEVICE] = gpu_device_memory(gpu);
    MUST(cuMemGetAllocationGranularity(&host_granule, &props[ON_HOST],
                                       CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    *mixed = (struct mixed){.each = host_granule > gpu->granule_bytes ? host_granule
                                                                      : gpu->granule_bytes};
    MUST(cuMemAddressReserve(&mixed->at, 2 * mixed->each, 0, 0, 0));
    for (unsigned half = 0; half < 2; half++) {
        for (unsigned location = 0; location < LOCATIONS; location++) {
            MUST(cuMemCreate(&mixed->half[half].chunk[location], mixed->each, &props[location], 0));
        }
    }
    return true;
}

static void hide(struct mixed *mixed, unsigned half)
{
    if (mixed->half[half].mapped) {
        MUST(cuMemUnmap(mixed->at + half * mixed->each, mixed->each));
        mixed->half[half].mapped = false;
    }
}

void mixed_show(const struct gpu *gpu, struct mixed *mixed, unsigned half, enum location location)
{
    CUdeviceptr at = mixed->at + half * mixed->each;
    hide(mixed, half);
    MUST(cuMemMap(at, mixed->each, 0, mixed->half[half].chunk[location], 0));
    MUST(gpu_allow(gpu, at, mixed->each));
    mixed->half[half].mapped = true;
}

void mixed_close(struct mixed *mixed)
{
    for (unsigned half = 0; half < 2; half++) {
        hide(mixed, half);
        for (unsigned location = 0; location < LOCATIONS; location++) {
            MUST(cuMemRelease(mixed->half[half].chunk[location]));
        }
    }
    MUST(cuMemAddressFree(mixed->at, 2 * mixed->each));
}
