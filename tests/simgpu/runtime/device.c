/* SPDX-License-Identifier: Apache-2.0 */
/* Devices and primary contexts. The calling thread's device is that of the driver's current
 * context; it is stored nowhere else. A primary context is retained at its first use. */
#include "runtime.h"

#include <pthread.h>
#include <stdatomic.h>

#define MAX_DEVICES 64

/* The primary contexts that this runtime retained. `live` is false after cudaDeviceReset: a thread
 * in which such a context is still current revives it at its next call. */
static struct {
    pthread_mutex_t lock;
    struct {
        CUcontext context;
        int live;
    } device[MAX_DEVICES];
} primary = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Saves every call the search below as long as nothing was ever reset. */
static atomic_bool any_reset;

cudaError_t rt_primary_context(const struct rt_driver *driver, int device, CUcontext *context)
{
    CUdevice handle = 0;
    cudaError_t error = RT_TRY(driver, cuDeviceGet, &handle, device);
    if (error != cudaSuccess) {
        return error;
    }
    if (device >= MAX_DEVICES) {
        return cudaErrorInvalidDevice;
    }
    pthread_mutex_lock(&primary.lock);
    if (!primary.device[device].live) {
        error = RT_TRY(driver, cuDevicePrimaryCtxRetain, &primary.device[device].context, handle);
        primary.device[device].live = error == cudaSuccess;
    }
    *context = primary.device[device].context;
    pthread_mutex_unlock(&primary.lock);
    return error;
}

/* The ordinal whose primary context this is, live or reset; -1 for one of the application's own. */
static int device_of_primary(CUcontext context, int *live)
{
    int found = -1;
    pthread_mutex_lock(&primary.lock);
    for (int i = 0; i < MAX_DEVICES && found < 0; i++) {
        if (primary.device[i].context == context) {
            found = i;
            *live = primary.device[i].live;
        }
    }
    pthread_mutex_unlock(&primary.lock);
    return found;
}

static cudaError_t bind(const struct rt_driver *driver, int device)
{
    CUcontext context = NULL;
    cudaError_t error = rt_primary_context(driver, device, &context);
    return error == cudaSuccess ? RT_TRY(driver, cuCtxSetCurrent, context) : error;
}

cudaError_t rt_enter(enum rt_stream_flavour flavour, const struct rt_driver **driver)
{
    cudaError_t error = rt_driver_get(flavour, driver);
    CUcontext context = NULL;
    if (error == cudaSuccess) {
        error = RT_TRY(*driver, cuCtxGetCurrent, &context);
    }
    if (error != cudaSuccess) {
        return error;
    }
    if (!context) {
        return bind(*driver, 0);
    }
    if (atomic_load_explicit(&any_reset, memory_order_acquire)) {
        int live = 1;
        int device = device_of_primary(context, &live);
        if (!live) {
            return bind(*driver, device);
        }
    }
    return cudaSuccess;
}

cudaError_t rt_current_device(const struct rt_driver *driver, int *device)
{
    CUcontext context = NULL;
    cudaError_t error = RT_TRY(driver, cuCtxGetCurrent, &context);
    *device = 0;
    if (error != cudaSuccess || !context) {
        return error;
    }
    int live = 1;
    int ordinal = device_of_primary(context, &live);
    if (ordinal >= 0) {
        *device = ordinal;
        return cudaSuccess;
    }
    CUdevice handle = 0;
    error = RT_TRY(driver, cuCtxGetDevice, &handle);
    *device = (int)handle;
    return error;
}

RT_API(cudaGetDeviceCount, (int *count))
{
    if (!count) {
        return rt_note(cudaErrorInvalidValue);
    }
    *count = 0;
    const struct rt_driver *driver = NULL;
    cudaError_t error = rt_driver_get(RT_LEGACY_STREAM, &driver);
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuDeviceGetCount, count);
    }
    if (error == cudaSuccess && *count == 0) {
        error = cudaErrorNoDevice;
    }
    return rt_note(error);
}

RT_API(cudaGetDevice, (int *device))
{
    const struct rt_driver *driver = NULL;
    cudaError_t error = device ? rt_driver_get(RT_LEGACY_STREAM, &driver) : cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        error = rt_current_device(driver, device);
    }
    return rt_note(error);
}

/* Since CUDA 12 this makes the primary context exist at once. */
RT_API(cudaSetDevice, (int device))
{
    const struct rt_driver *driver = NULL;
    cudaError_t error = rt_driver_get(RT_LEGACY_STREAM, &driver);
    if (error == cudaSuccess) {
        error = bind(driver, device);
    }
    return rt_note(error);
}

static cudaError_t set_flags(const struct rt_driver *driver, int device, unsigned flags)
{
    CUdevice handle = 0;
    cudaError_t error = RT_TRY(driver, cuDeviceGet, &handle, device);
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuDevicePrimaryCtxSetFlags, handle, flags);
    }
    return error;
}

RT_API(cudaInitDevice, (int device, unsigned device_flags, unsigned flags))
{
    const struct rt_driver *driver = NULL;
    cudaError_t error = rt_driver_get(RT_LEGACY_STREAM, &driver);
    if (error == cudaSuccess && (flags & ~cudaInitDeviceFlagsAreValid)) {
        error = cudaErrorInvalidValue;
    }
    if (error == cudaSuccess && (flags & cudaInitDeviceFlagsAreValid)) {
        error = set_flags(driver, device, device_flags);
    }
    if (error == cudaSuccess) {
        CUcontext context = NULL;
        error = rt_primary_context(driver, device, &context);
    }
    return rt_note(error);
}

RT_API(cudaSetDeviceFlags, (unsigned flags))
{
    const struct rt_driver *driver = NULL;
    int device = 0;
    cudaError_t error = rt_driver_get(RT_LEGACY_STREAM, &driver);
    if (error == cudaSuccess) {
        error = rt_current_device(driver, &device);
    }
    if (error == cudaSuccess) {
        error = set_flags(driver, device, flags);
    }
    return rt_note(error);
}

RT_API(cudaGetDeviceFlags, (unsigned *flags))
{
    const struct rt_driver *driver = NULL;
    int device = 0, active = 0;
    CUdevice handle = 0;
    cudaError_t error = rt_driver_get(RT_LEGACY_STREAM, &driver);
    if (error == cudaSuccess) {
        error = rt_current_device(driver, &device);
    }
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuDeviceGet, &handle, device);
    }
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuDevicePrimaryCtxGetState, handle, flags, &active);
    }
    return rt_note(error);
}

/* Its result is not noted: the call also ends a sticky error, together with the context that had
 * it. */
RT_API(cudaDeviceReset, (void))
{
    const struct rt_driver *driver = NULL;
    int device = 0;
    CUdevice handle = 0;
    cudaError_t error = rt_driver_get(RT_LEGACY_STREAM, &driver);
    if (error == cudaSuccess) {
        error = rt_current_device(driver, &device);
    }
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuDeviceGet, &handle, device);
    }
    if (error != cudaSuccess) {
        return rt_note(error);
    }
    pthread_mutex_lock(&primary.lock);
    primary.device[device].live = 0;
    atomic_store_explicit(&any_reset, true, memory_order_release);
    pthread_mutex_unlock(&primary.lock);
    error = RT_TRY(driver, cuDevicePrimaryCtxReset, handle);
    if (error == cudaSuccess) {
        rt_forget_error();
    }
    return rt_note(error);
}

RT_API(cudaDeviceSynchronize, (void))
{
    const struct rt_driver *driver = NULL;
    cudaError_t error = rt_enter(RT_LEGACY_STREAM, &driver);
    if (error == cudaSuccess) {
        error = driver->cuCtxSynchronize ? rt_error(driver->cuCtxSynchronize())
                                         : cudaErrorCallRequiresNewerDriver;
    }
    return rt_note(error);
}

RT_API(cudaCtxResetPersistingL2Cache, (void))
{
    const struct rt_driver *driver = NULL;
    cudaError_t error = rt_enter(RT_LEGACY_STREAM, &driver);
    if (error == cudaSuccess) {
        error = driver->cuCtxResetPersistingL2Cache
                    ? rt_error(driver->cuCtxResetPersistingL2Cache())
                    : cudaErrorCallRequiresNewerDriver;
    }
    return rt_note(error);
}

RT_API(cudaDeviceGetLimit, (size_t * value, enum cudaLimit limit))
{
    return RT_CALL(cuCtxGetLimit, value, (CUlimit)limit);
}

RT_API(cudaDeviceSetLimit, (enum cudaLimit limit, size_t value))
{
    return RT_CALL(cuCtxSetLimit, (CUlimit)limit, value);
}

RT_API(cudaDeviceGetCacheConfig, (enum cudaFuncCache * config))
{
    return RT_CALL(cuCtxGetCacheConfig, (CUfunc_cache *)config);
}

RT_API(cudaDeviceSetCacheConfig, (enum cudaFuncCache config))
{
    return RT_CALL(cuCtxSetCacheConfig, (CUfunc_cache)config);
}

RT_API(cudaDeviceGetSharedMemConfig, (enum cudaSharedMemConfig * config))
{
    return RT_CALL(cuCtxGetSharedMemConfig, (CUsharedconfig *)config);
}

RT_API(cudaDeviceSetSharedMemConfig, (enum cudaSharedMemConfig config))
{
    return RT_CALL(cuCtxSetSharedMemConfig, (CUsharedconfig)config);
}

RT_API(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest))
{
    return RT_CALL(cuCtxGetStreamPriorityRange, least, greatest);
}

RT_API(cudaDeviceFlushGPUDirectRDMAWrites, (enum cudaFlushGPUDirectRDMAWritesTarget target,
                                            enum cudaFlushGPUDirectRDMAWritesScope scope))
{
    return RT_CALL(cuFlushGPUDirectRDMAWrites, (CUflushGPUDirectRDMAWritesTarget)target,
                   (CUflushGPUDirectRDMAWritesScope)scope);
}

/* Functions that name a device use its handle, from cuDeviceGet, which checks the ordinal. */
#define RT_DEVICE_CALL(function, ordinal, ...)                          \
    __extension__({                                                     \
        const struct rt_driver *driver_ = NULL;                         \
        CUdevice device_ = 0;                                           \
        cudaError_t error_ = rt_driver_get(RT_LEGACY_STREAM, &driver_); \
        if (error_ == cudaSuccess) {                                    \
            error_ = RT_TRY(driver_, cuDeviceGet, &device_, ordinal);   \
        }                                                               \
        if (error_ == cudaSuccess) {                                    \
            error_ = RT_TRY(driver_, function, __VA_ARGS__);            \
        }                                                               \
        rt_note(error_);                                                \
    })

RT_API(cudaDeviceGetAttribute, (int *value, enum cudaDeviceAttr attribute, int device))
{
    return RT_DEVICE_CALL(cuDeviceGetAttribute, device, value, (CUdevice_attribute)attribute,
                          device_);
}

RT_API(cudaDeviceGetPCIBusId, (char *id, int length, int device))
{
    return RT_DEVICE_CALL(cuDeviceGetPCIBusId, device, id, length, device_);
}

RT_API(cudaDeviceGetByPCIBusId, (int *device, const char *id))
{
    return RT_CALL_WITHOUT_CONTEXT(cuDeviceGetByPCIBusId, device, id);
}

RT_API(cudaDeviceGetDefaultMemPool, (cudaMemPool_t * pool, int device))
{
    return RT_DEVICE_CALL(cuDeviceGetDefaultMemPool, device, pool, device_);
}

RT_API(cudaDeviceGetMemPool, (cudaMemPool_t * pool, int device))
{
    return RT_DEVICE_CALL(cuDeviceGetMemPool, device, pool, device_);
}

RT_API(cudaDeviceSetMemPool, (int device, cudaMemPool_t pool))
{
    return RT_DEVICE_CALL(cuDeviceSetMemPool, device, device_, pool);
}

RT_API(cudaDeviceGetGraphMemAttribute, (int device, int attribute, void *value))
{
    return RT_DEVICE_CALL(cuDeviceGetGraphMemAttribute, device, device_,
                          (CUgraphMem_attribute)attribute, value);
}

RT_API(cudaDeviceSetGraphMemAttribute, (int device, int attribute, void *value))
{
    return RT_DEVICE_CALL(cuDeviceSetGraphMemAttribute, device, device_,
                          (CUgraphMem_attribute)attribute, value);
}

RT_API(cudaDeviceGraphMemTrim, (int device))
{
    return RT_DEVICE_CALL(cuDeviceGraphMemTrim, device, device_);
}

RT_API(cudaDeviceRegisterAsyncNotification, (int device, cudaAsyncCallback function,
                                             void *user_data, cudaAsyncCallbackHandle_t *callback))
{
    return RT_DEVICE_CALL(cuDeviceRegisterAsyncNotification, device, device_,
                          (CUasyncCallback)function, user_data, (CUasyncCallbackHandle *)callback);
}

RT_API(cudaDeviceUnregisterAsyncNotification, (int device, cudaAsyncCallbackHandle_t callback))
{
    return RT_DEVICE_CALL(cuDeviceUnregisterAsyncNotification, device, device_,
                          (CUasyncCallbackHandle)callback);
}

RT_API(cudaDeviceGetTexture1DLinearMaxWidth,
       (size_t * elements, const struct cudaChannelFormatDesc *desc, int device))
{
    CUarray_format format;
    unsigned channels = desc ? rt_array_format(desc, &format) : 0;
    if (channels == 0) {
        return rt_note(cudaErrorInvalidChannelDescriptor);
    }
    return RT_DEVICE_CALL(cuDeviceGetTexture1DLinearMaxWidth, device, elements, format, channels,
                          device_);
}

static cudaError_t device_pair(const struct rt_driver **driver, const int ordinals[2],
                               CUdevice handles[2])
{
    cudaError_t error = rt_driver_get(RT_LEGACY_STREAM, driver);
    for (int i = 0; i < 2 && error == cudaSuccess; i++) {
        error = RT_TRY(*driver, cuDeviceGet, &handles[i], ordinals[i]);
    }
    return error;
}

RT_API(cudaDeviceCanAccessPeer, (int *can, int device, int peer))
{
    const struct rt_driver *driver = NULL;
    CUdevice handle[2];
    cudaError_t error = device_pair(&driver, (int[2]){device, peer}, handle);
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuDeviceCanAccessPeer, can, handle[0], handle[1]);
    }
    return rt_note(error);
}

RT_API(cudaDeviceGetP2PAttribute, (int *value, enum cudaDeviceP2PAttr attribute, int from, int to))
{
    const struct rt_driver *driver = NULL;
    CUdevice handle[2];
    cudaError_t error = device_pair(&driver, (int[2]){from, to}, handle);
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuDeviceGetP2PAttribute, value, (CUdevice_P2PAttribute)attribute,
                       handle[0], handle[1]);
    }
    return rt_note(error);
}

RT_API(cudaDeviceEnablePeerAccess, (int peer, unsigned flags))
{
    const struct rt_driver *driver = NULL;
    CUcontext context = NULL;
    cudaError_t error = rt_enter(RT_LEGACY_STREAM, &driver);
    if (error == cudaSuccess) {
        error = rt_primary_context(driver, peer, &context);
    }
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuCtxEnablePeerAccess, context, flags);
    }
    return rt_note(error);
}

RT_API(cudaDeviceDisablePeerAccess, (int peer))
{
    const struct rt_driver *driver = NULL;
    CUcontext context = NULL;
    cudaError_t error = rt_enter(RT_LEGACY_STREAM, &driver);
    if (error == cudaSuccess) {
        error = rt_primary_context(driver, peer, &context);
    }
    if (error == cudaSuccess) {
        error = RT_TRY(driver, cuCtxDisablePeerAccess, context);
    }
    return rt_note(error);
}
