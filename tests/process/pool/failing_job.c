/* SPDX-License-Identifier: Apache-2.0 */
/* Allocates up to the cap by every road while calls of the driver fail (SIMGPU_FAIL), and looks at
 * what the device itself has in use after each call. A call that failed for another reason than
 * want of memory is made again: it has to succeed, or to be refused, within a few attempts.
 *
 *   failing_job CAP_MIB   prints the most bytes that were in use; status 1 where that passed the
 *                         cap
 *   failing_job calls     prints what each function of the driver was called, and how often
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#include "driver.h"
#include "say.h"

enum { BLOCK_BYTES = 8 << 20, MOST = 16, ATTEMPTS = 4 };

static const char *const functions[] = {
#define SIM_DRIVER(base, symbol, version, flavour) #symbol,
#include "simgpu/driver/driver_table.h"
#undef SIM_DRIVER
};

static struct driver cu;
static CUdevice device;
static CUcontext context;
static CUstream stream;
static CUmemoryPool own_pool;
static uint64_t (*used_bytes)(int device);
static uint64_t (*calls)(const char *function);
static uint64_t peak_bytes;
static bool captured;

static void look(void)
{
    uint64_t now = used_bytes(0);
    peak_bytes = now > peak_bytes ? now : peak_bytes;
}

static void find(const char *name, void *function)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *address = library != NULL ? dlsym(library, name) : NULL;
    EXPECT(address != NULL);
    memcpy(function, &address, sizeof address);
}

/* The call, made again while it fails for another reason than want of memory. */
#define PERSIST(call)                                                                              \
    ({                                                                                             \
        CUresult persist_result = CUDA_SUCCESS;                                                    \
        int persist_left = ATTEMPTS;                                                               \
        do {                                                                                       \
            persist_result = (call);                                                               \
            look();                                                                                \
        } while (persist_result != CUDA_SUCCESS && persist_result != CUDA_ERROR_OUT_OF_MEMORY &&   \
                 --persist_left > 0);                                                              \
        if (persist_left == 0) {                                                                   \
            (void)fprintf(stderr, "%s gave %d, %d times\n", #call, (int)persist_result, ATTEMPTS); \
            exit(1);                                                                               \
        }                                                                                          \
        persist_result;                                                                            \
    })

union thing {
    CUdeviceptr at;
    CUarray array;
    CUmemGenericAllocationHandle chunk;
};

static CUresult linear(union thing *out)
{
    return PERSIST(cu.cuMemAlloc(&out->at, BLOCK_BYTES));
}

static CUresult pitched(union thing *out)
{
    size_t pitch = 0;
    return PERSIST(cu.cuMemAllocPitch(&out->at, &pitch, 4096, BLOCK_BYTES / 4096, 4));
}

static CUresult managed(union thing *out)
{
    return PERSIST(cu.cuMemAllocManaged(&out->at, BLOCK_BYTES, CU_MEM_ATTACH_GLOBAL));
}

static void free_linear(const union thing *thing)
{
    (void)PERSIST(cu.cuMemFree(thing->at));
}

static CUresult ordered(union thing *out)
{
    return PERSIST(cu.cuMemAllocAsync(&out->at, BLOCK_BYTES, stream));
}

static CUresult of_legacy_stream(union thing *out)
{
    return PERSIST(cu.cuMemAllocAsync(&out->at, BLOCK_BYTES, NULL));
}

static CUresult of_own_pool(union thing *out)
{
    return PERSIST(cu.cuMemAllocFromPoolAsync(&out->at, BLOCK_BYTES, own_pool, stream));
}

static void free_ordered(const union thing *thing)
{
    (void)PERSIST(cu.cuMemFreeAsync(thing->at, stream));
}

static CUresult array(union thing *out)
{
    const CUDA_ARRAY_DESCRIPTOR shape = {1024, BLOCK_BYTES / 4096, CU_AD_FORMAT_FLOAT, 1};
    return PERSIST(cu.cuArrayCreate(&out->array, &shape));
}

static void free_array(const union thing *thing)
{
    (void)PERSIST(cu.cuArrayDestroy(thing->array));
}

static CUresult chunk(union thing *out)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    return PERSIST(cu.cuMemCreate(&out->chunk, BLOCK_BYTES, &prop, 0));
}

static void free_chunk(const union thing *thing)
{
    (void)PERSIST(cu.cuMemRelease(thing->chunk));
}

static const struct road {
    CUresult (*take)(union thing *out);
    void (*give_back)(const union thing *thing);
} roads[] = {
    {linear, free_linear},  {ordered, free_ordered},
    {pitched, free_linear}, {of_legacy_stream, free_ordered},
    {managed, free_linear}, {of_own_pool, free_ordered},
    {array, free_array},    {chunk, free_chunk},
};

enum { ROADS = sizeof roads / sizeof roads[0], CHUNKS = ROADS - 1 };

static void fill_by(const struct road *road)
{
    union thing held[MOST];
    int count = 0;
    while (count < MOST && road->take(&held[count]) == CUDA_SUCCESS) {
        count++;
    }
    EXPECT(count > 0 || captured); /* what the pool holds stays while something captures */
    while (count > 0) {
        road->give_back(&held[--count]);
        look();
    }
    if (stream != NULL) {
        (void)PERSIST(cu.cuStreamSynchronize(stream));
    }
}

static void fill_by_all(void)
{
    union thing held[ROADS];
    bool has[ROADS];
    for (size_t i = 0; i < ROADS; i++) {
        has[i] = roads[i].take(&held[i]) == CUDA_SUCCESS;
    }
    for (size_t i = 0; i < ROADS; i++) {
        if (has[i]) {
            roads[i].give_back(&held[i]);
        }
    }
}

static void begin(void)
{
    const CUmemPoolProps own = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUstream capturing;
    (void)PERSIST(cu.cuInit(0));
    (void)PERSIST(cu.cuDeviceGet(&device, 0));
    if (captured) {
        fill_by(&roads[CHUNKS]);
    }
    (void)PERSIST(cu.cuDevicePrimaryCtxRetain(&context, device));
    (void)PERSIST(cu.cuCtxSetCurrent(context));
    (void)PERSIST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    (void)PERSIST(cu.cuMemPoolCreate(&own_pool, &own));
    if (captured) {
        (void)PERSIST(cu.cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
        (void)PERSIST(cu.cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    }
}

int main(int argc, char **argv)
{
    EXPECT(argc == 2 || argc == 3);
    captured = argc == 3;
    cu = driver_open();
    find("simgpu_used_bytes", &used_bytes);
    find("simgpu_calls", &calls);
    begin();
    for (size_t i = 0; i < ROADS; i++) {
        fill_by(&roads[captured ? ROADS - 1 - i : i]);
    }
    fill_by_all();
    if (strcmp(argv[1], "calls") == 0) {
        for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
            (void)printf("%s %llu\n", functions[i], (unsigned long long)calls(functions[i]));
        }
        return 0;
    }
    (void)printf("%llu\n", (unsigned long long)peak_bytes);
    return peak_bytes <= strtoull(argv[1], NULL, 10) * MIB ? 0 : 1;
}
