/* SPDX-License-Identifier: Apache-2.0 */
/* The differences between libcudart.so.12 and .13, both loaded and called with the signatures of
 * their generation's public header. Both headers cannot be included. */
#include <criterion/criterion.h>

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

static void *library(const char *name)
{
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(handle, "%s", dlerror());
    return handle;
}

static void *function(void *handle, const char *name)
{
    void *found = dlsym(handle, name);
    cr_assert_not_null(found, "%s", name);
    return found;
}

/* The places of some fields of cudaDeviceProp, in bytes: CUDA 12.4 to 12.9, and 13.0 to 13.2. */
struct prop_places {
    const char *soname, *symbol;
    size_t size, total_global_mem, multiprocessors, major, managed, optin_shared, cluster_launch;
};

static void check_prop(const struct prop_places *places)
{
    static unsigned char prop[4096];
    int (*get)(void *, int) =
        (int (*)(void *, int))function(library(places->soname), places->symbol);
    memset(prop, 0xA5, sizeof(prop));
    cr_assert_eq(get(prop, 0), 0);
    size_t bytes = 0;
    int number = 0;
    memcpy(&bytes, prop + places->total_global_mem, sizeof(bytes));
    cr_assert_eq(bytes, (size_t)24 << 30);
    memcpy(&number, prop + places->major, sizeof(number));
    cr_assert_eq(number, 8);
    memcpy(&number, prop + places->multiprocessors, sizeof(number));
    cr_assert(number > 0 && number < 1024, "%d multiprocessors", number);
    memcpy(&number, prop + places->managed, sizeof(number));
    cr_assert(number == 0 || number == 1, "managedMemory %d", number);
    memcpy(&bytes, prop + places->optin_shared, sizeof(bytes));
    cr_assert(bytes >= 48 << 10 && bytes <= 1 << 20, "sharedMemPerBlockOptin %zu", bytes);
    cr_assert_neq(prop[places->size - 1], 0xA5, "all of it is filled");
    cr_assert_eq(prop[places->size], 0xA5, "and nothing behind it");
}

Test(abi, device_properties_of_12)
{
    check_prop(&(struct prop_places){"libcudart.so.12", "cudaGetDeviceProperties_v2", 1032, 288,
                                     388, 360, 652, 696, 772});
}

Test(abi, device_properties_of_13)
{
    check_prop(&(struct prop_places){"libcudart.so.13", "cudaGetDeviceProperties", 1008, 288, 384,
                                     360, 636, 672, 748});
}

Test(abi, versions)
{
    int version = 0;
    int (*get)(int *) =
        (int (*)(int *))function(library("libcudart.so.12"), "cudaRuntimeGetVersion");
    cr_assert_eq(get(&version), 0);
    cr_assert_eq(version / 1000, 12);
    get = (int (*)(int *))function(library("libcudart.so.13"), "cudaRuntimeGetVersion");
    cr_assert_eq(get(&version), 0);
    cr_assert_eq(version / 1000, 13);
}

struct location {
    int type, id;
};

/* CUDA 12: (pointer, count, advice, device); 13, and 12's _v2: a location instead of the device. */
Test(abi, advice_names_a_device_or_a_location)
{
    void *old = library("libcudart.so.12"), *new = library("libcudart.so.13");
    int (*allocate)(void **, size_t, unsigned) =
        (int (*)(void **, size_t, unsigned))function(old, "cudaMallocManaged");
    int (*by_device)(const void *, size_t, int, int) =
        (int (*)(const void *, size_t, int, int))function(old, "cudaMemAdvise");
    int (*by_location_12)(const void *, size_t, int, struct location) =
        (int (*)(const void *, size_t, int, struct location))function(old, "cudaMemAdvise_v2");
    int (*by_location_13)(const void *, size_t, int, struct location) =
        (int (*)(const void *, size_t, int, struct location))function(new, "cudaMemAdvise");
    enum { SET_PREFERRED_LOCATION = 3, LOCATION_DEVICE = 1 };
    void *pointer = NULL;
    struct location here = {LOCATION_DEVICE, 0};
    cr_assert_eq(allocate(&pointer, 1 << 21, 1), 0);
    uint64_t (*calls)(const char *) =
        (uint64_t(*)(const char *))function(library("libcuda.so.1"), "simgpu_calls");
    cr_assert_eq(by_device(pointer, 1 << 21, SET_PREFERRED_LOCATION, 0), 0);
    cr_assert_eq(calls("cuMemAdvise"), 1);
    cr_assert_eq(calls("cuMemAdvise_v2"), 0);
    cr_assert_eq(by_location_12(pointer, 1 << 21, SET_PREFERRED_LOCATION, here), 0);
    cr_assert_eq(calls("cuMemAdvise_v2"), 1);
    cr_assert_eq(by_location_13(pointer, 1 << 21, SET_PREFERRED_LOCATION, here), 0);
    cr_assert_eq(calls("cuMemAdvise_v2"), 2);
}

/* One capture seen by all generations of cudaStreamGetCaptureInfo. */
Test(abi, capture_info_of_every_generation)
{
    void *old = library("libcudart.so.12"), *new = library("libcudart.so.13");
    void *stream = NULL, *graph = NULL;
    int (*create)(void **) = (int (*)(void **))function(new, "cudaStreamCreate");
    int (*begin)(void *, int) = (int (*)(void *, int))function(new, "cudaStreamBeginCapture");
    int (*end)(void *, void **) = (int (*)(void *, void **))function(new, "cudaStreamEndCapture");
    cr_assert_eq(create(&stream), 0);
    cr_assert_eq(begin(stream, 2), 0);
    uint64_t id[4] = {0};
    int status[4] = {0};
    int (*first)(void *, int *, uint64_t *) =
        (int (*)(void *, int *, uint64_t *))function(old, "cudaStreamGetCaptureInfo");
    cr_assert_eq(first(stream, &status[0], &id[0]), 0);
    void *graphs[3] = {0};
    const void *nodes = NULL, *edges = NULL;
    size_t count = 99;
    int (*second)(void *, int *, uint64_t *, void **, const void **, size_t *) =
        (int (*)(void *, int *, uint64_t *, void **, const void **, size_t *))function(
            old, "cudaStreamGetCaptureInfo_v2");
    cr_assert_eq(second(stream, &status[1], &id[1], &graphs[0], &nodes, &count), 0);
    cr_assert_eq(count, 0);
    typedef int (*with_edges_t)(void *, int *, uint64_t *, void **, const void **, const void **,
                                size_t *);
    with_edges_t third = (with_edges_t)function(old, "cudaStreamGetCaptureInfo_v3");
    with_edges_t newest = (with_edges_t)function(new, "cudaStreamGetCaptureInfo");
    count = 99;
    cr_assert_eq(third(stream, &status[2], &id[2], &graphs[1], &nodes, &edges, &count), 0);
    cr_assert_eq(count, 0);
    count = 99;
    cr_assert_eq(newest(stream, &status[3], &id[3], &graphs[2], &nodes, &edges, &count), 0);
    cr_assert_eq(count, 0);
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(status[i], 1, "active");
        cr_assert_eq(id[i], id[0]);
    }
    cr_assert(graphs[0] && graphs[0] == graphs[1] && graphs[1] == graphs[2]);
    cr_assert_eq(end(stream, &graph), 0);
}
