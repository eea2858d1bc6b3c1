/* SPDX-License-Identifier: Apache-2.0 */
/* Hot roads through the hooks: what a program's calls run through where memshim is preloaded. */
#include <dlfcn.h>
#include <stdlib.h>

#include "driver.h"
#include "roads.h"
#include "say.h"

#define BYTES       (96 * KIB)
#define ARENA_BYTES (20 * MIB)
#define MIXED_LIVE  128u
#define AMONG_LIVE  20000u
#define CUDA        1 /* c10::DeviceType::CUDA, in the lower byte; the device's index above */

/* c10::reportMemoryUsageToProfiler(void *, int64_t, size_t, size_t, Device) */
void report_memory(
    void *at, int64_t bytes, size_t allocated, size_t reserved,
    uint16_t device) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");

static struct driver cu;
static CUstream stream, other_stream;
static CUevent event;
static CUdeviceptr arena, mixed[MIXED_LIVE], among[AMONG_LIVE], target;
static void *libm;
static uint8_t page[4096];

static CUdeviceptr must_alloc(size_t bytes)
{
    CUdeviceptr block;
    MUST(cu.cuMemAllocAsync(&block, bytes, stream));
    return block;
}

/* Powers of two from 512 bytes to 128 KiB, each as likely, and what lies between. */
static size_t mixed_bytes(void)
{
    const uint64_t random = roads_random(), power = UINT64_C(512) << random % 9;
    return power + (random >> 32) % power;
}

static size_t small_bytes(void)
{
    return 512 * (1 + roads_random() % 4);
}

static void replace(CUdeviceptr *block, size_t bytes)
{
    MUST(cu.cuMemFreeAsync(*block, stream));
    *block = must_alloc(bytes);
}

ROAD(pair)
{
    (void)i;
    MUST(cu.cuMemFreeAsync(must_alloc(BYTES), stream));
}

ROAD(mixed)
{
    (void)i;
    replace(&mixed[roads_random() % MIXED_LIVE], mixed_bytes());
}

ROAD(among)
{
    (void)i;
    replace(&among[roads_random() % AMONG_LIVE], small_bytes());
}

/* Freed on one stream, and allocated on another that waits for it. */
ROAD(ordered)
{
    CUdeviceptr block;
    CUstream from = i % 2 == 0 ? stream : other_stream;
    CUstream to = i % 2 == 0 ? other_stream : stream;
    MUST(cu.cuMemAllocAsync(&block, BYTES, from));
    MUST(cu.cuMemFreeAsync(block, from));
    MUST(cu.cuEventRecord(event, from));
    MUST(cu.cuStreamWaitEvent(to, event, 0));
}

ROAD(malloc_free)
{
    CUdeviceptr block;
    (void)i;
    MUST(cu.cuMemAlloc(&block, BYTES));
    MUST(cu.cuMemFree(block));
}

ROAD(tensor)
{
    void *at = (void *)(uintptr_t)(arena + i % 64 * BYTES);
    report_memory(at, (int64_t)BYTES, BYTES, ARENA_BYTES, CUDA);
    report_memory(at, -(int64_t)BYTES, 0, ARENA_BYTES, CUDA);
}

ROAD(copy)
{
    (void)i;
    MUST(cu.cuMemcpyHtoD(target, page, sizeof page));
}

ROAD(dlsym)
{
    static const char *const names[] = {"cos", "strtod", "curl_easy_init", "cublasCreate_v2"};
    const void *found = dlsym(libm, names[i % 4]);
    EXPECT(i % 4 != 0 || found != NULL);
}

static void make_ready(void)
{
    CUcontext context;
    EXPECT(dlsym(RTLD_DEFAULT, "memshim_step") != NULL); /* else nothing of it is counted */
    cu = driver_use(&context);
    libm = dlopen("libm.so.6", RTLD_NOW);
    EXPECT(libm != NULL);
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cu.cuStreamCreate(&other_stream, CU_STREAM_NON_BLOCKING));
    MUST(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cu.cuMemAlloc(&arena, ARENA_BYTES));
    MUST(cu.cuMemAlloc(&target, sizeof page));
}

int main(void)
{
    say_world();
    make_ready();
    WALK(dlsym);
    WALK(pair);
    WALK(malloc_free);
    WALK(ordered);
    WALK(tensor);
    WALK(copy);
    for (uint32_t k = 0; k < MIXED_LIVE; k++) {
        mixed[k] = must_alloc(mixed_bytes());
    }
    WALK(mixed);
    for (uint32_t k = 0; k < AMONG_LIVE; k++) {
        among[k] = must_alloc(small_bytes());
    }
    WALK(among);
    end_of_roads();
}
