/* SPDX-License-Identifier: Apache-2.0 */
/* How the double finds the driver, in the same way as the real runtime: dlopen("libcuda.so.1"),
 * dlsym of cuDriverGetVersion and cuGetProcAddress_v2, every other name through the latter, once
 * for each meaning of stream 0. Nothing is loaded before the first CUDA call. */
#include "runtime.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>

struct loaded {
    PFN_cuGetProcAddress_v12000 resolver;
    struct rt_driver legacy, per_thread;
};

static _Atomic(struct loaded *) published;
static atomic_bool initialized;

PFN_cuGetProcAddress_v12000 rt_driver_resolver(void)
{
    return atomic_load(&published)->resolver;
}

static void *resolve(PFN_cuGetProcAddress_v12000 resolver, const char *symbol, int version,
                     enum rt_stream_flavour flavour)
{
    /* cudaTypedefs.h: the per-thread variant of a function older than CUDA 7.0 came with 7.0. */
    if (flavour == RT_PER_THREAD_STREAM && version < 7000) {
        version = 7000;
    }
    void *function = NULL;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    CUresult result = resolver(symbol, &function, version, (cuuint64_t)flavour, &found);
    return result == CUDA_SUCCESS && found == CU_GET_PROC_ADDRESS_SUCCESS ? function : NULL;
}

static void fill(struct rt_driver *table, PFN_cuGetProcAddress_v12000 resolver,
                 enum rt_stream_flavour flavour)
{
#define RT_ROW(field, symbol, version) \
    table->field = (PFN_##symbol##_v##version)resolve(resolver, #symbol, version, flavour);
    RT_DRIVER_TABLE(RT_ROW)
#undef RT_ROW
}

/* Used only by the thread that loads. Several threads may load, and the first one to publish wins.
 * A lock would be held across libcuda's constructors. */
static cudaError_t load(struct loaded **out)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        return cudaErrorInsufficientDriver;
    }
    PFN_cuDriverGetVersion_v2020 get_version =
        (PFN_cuDriverGetVersion_v2020)dlsym(library, "cuDriverGetVersion");
    PFN_cuGetProcAddress_v12000 resolver =
        (PFN_cuGetProcAddress_v12000)dlsym(library, "cuGetProcAddress_v2");
    int version = 0;
    if (!get_version || !resolver || get_version(&version) != CUDA_SUCCESS ||
        version < RT_ABI * 1000) {
        return cudaErrorInsufficientDriver;
    }
    struct loaded *fresh = calloc(1, sizeof(*fresh));
    if (!fresh) {
        return cudaErrorMemoryAllocation;
    }
    fresh->resolver = resolver;
    fill(&fresh->legacy, resolver, RT_LEGACY_STREAM);
    fill(&fresh->per_thread, resolver, RT_PER_THREAD_STREAM);
    struct loaded *expected = NULL;
    if (!atomic_compare_exchange_strong(&published, &expected, fresh)) {
        free(fresh);
        fresh = expected;
    }
    *out = fresh;
    return cudaSuccess;
}

cudaError_t rt_driver_load(enum rt_stream_flavour flavour, const struct rt_driver **driver)
{
    struct loaded *loaded = atomic_load(&published);
    if (!loaded) {
        cudaError_t error = load(&loaded);
        if (error != cudaSuccess) {
            return error;
        }
    }
    *driver = flavour == RT_PER_THREAD_STREAM ? &loaded->per_thread : &loaded->legacy;
    return cudaSuccess;
}

cudaError_t rt_driver_get(enum rt_stream_flavour flavour, const struct rt_driver **driver)
{
    cudaError_t error = rt_driver_load(flavour, driver);
    if (error == cudaSuccess && !atomic_load_explicit(&initialized, memory_order_acquire)) {
        error = RT_TRY(*driver, cuInit, 0);
        if (error == cudaSuccess) {
            atomic_store_explicit(&initialized, true, memory_order_release);
        }
    }
    return error;
}
