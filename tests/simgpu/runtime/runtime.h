/* SPDX-License-Identifier: Apache-2.0 */
/* The internal contract of the runtime double: how an exported function is written.
 *
 * Two libraries are built from these sources, with RT_ABI 12 and 13: the layouts and signatures of
 * libcudart.so.12 and libcudart.so.13 where the two differ (abi.h). Files about streams are
 * compiled twice, with RT_PER_THREAD 0 and 1, because every function with a stream argument has two
 * exports that differ only in the meaning of stream 0: `cudaX`, and `cudaX_ptsz` or `cudaX_ptds`.
 *
 * State. All of it is the driver's, except: each thread's last error (errors.c), each thread's
 * stack of launch configurations and the registry of host functions (registry.c), and which primary
 * contexts this runtime retained (device.c). */
#ifndef SIMGPU_RUNTIME_H
#define SIMGPU_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>
#include <cudaProfilerTypedefs.h>
#include <cudaTypedefs.h>
#include <driver_types.h>

#include "driver_table.h"
#include "driver_types_newer.h"

#ifndef RT_ABI
#    define RT_ABI 13
#endif
#if RT_ABI == 13
#    define RT_VERSION 13000 /* the answer of cudaRuntimeGetVersion */
#elif RT_ABI == 12
#    define RT_VERSION 12080
#else
#    error "RT_ABI is 12 or 13: the runtimes that this double stands for"
#endif

#ifndef RT_PER_THREAD
#    define RT_PER_THREAD 0
#endif

/* The driver's functions; null if this driver lacks one. */
struct rt_driver {
#define RT_ROW(field, symbol, version) PFN_##symbol##_v##version field;
    RT_DRIVER_TABLE(RT_ROW)
#undef RT_ROW
};

/* Which default stream 0 denotes; the values are those of cuGetProcAddress's flags. */
enum rt_stream_flavour {
    RT_LEGACY_STREAM = CU_GET_PROC_ADDRESS_LEGACY_STREAM,
    RT_PER_THREAD_STREAM = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
};
#define RT_FLAVOUR (RT_PER_THREAD ? RT_PER_THREAD_STREAM : RT_LEGACY_STREAM)

/* Returns the driver's functions. The first call of a process loads libcuda.so.1 and initializes
 * it. Errors: cudaErrorInsufficientDriver (no libcuda, or one older than RT_ABI), or cuInit's. */
cudaError_t rt_driver_get(enum rt_stream_flavour flavour, const struct rt_driver **driver);

/* The same without cuInit: for functions that are documented to work before it. */
cudaError_t rt_driver_load(enum rt_stream_flavour flavour, const struct rt_driver **driver);

/* The resolver itself, for cudaGetDriverEntryPoint. Valid after rt_driver_load. */
PFN_cuGetProcAddress_v12000 rt_driver_resolver(void);

/* As rt_driver_get, and gives the calling thread a live context: device 0's primary one if it had
 * none. */
cudaError_t rt_enter(enum rt_stream_flavour flavour, const struct rt_driver **driver);

/* Makes sure that the primary context of a device (a CUDA ordinal) exists, and returns it. */
cudaError_t rt_primary_context(const struct rt_driver *driver, int device, CUcontext *context);

/* The calling thread's device: that of its current context, otherwise 0. Creates nothing. */
cudaError_t rt_current_device(const struct rt_driver *driver, int *device);

/* Records an error as the calling thread's last one, and returns it. Does not record
 * cudaSuccess. */
cudaError_t rt_note(cudaError_t error);

/* Forgets the calling thread's last error, sticky or not: for cudaDeviceReset. */
void rt_forget_error(void);

/* The runtime's errors have the driver's numbers (both are in the public headers). */
static inline cudaError_t rt_error(CUresult result)
{
    return (cudaError_t)result;
}

/* The kernel of a host function, or of a kernel handle that this runtime returned. Loads its
 * library. Errors: cudaErrorInvalidDeviceFunction, or the driver's at loading. */
cudaError_t rt_kernel_of(const struct rt_driver *driver, const void *function, CUkernel *kernel);

/* Remembers a returned kernel handle, so that rt_kernel_of accepts it as a function. */
cudaError_t rt_kernel_give(CUkernel kernel);

/* The driver's form of a launch configuration; the caller keeps its attributes. */
CUlaunchConfig rt_launch_config(const cudaLaunchConfig_t *config);

/* Device address and size in bytes of a registered __device__ variable; either result may be
 * NULL. */
cudaError_t rt_symbol_of(const struct rt_driver *driver, const void *symbol, CUdeviceptr *address,
                         size_t *size_bytes);

/* For symbol copies in graphs and streams: the range [offset, offset + count) of a variable. */
cudaError_t rt_symbol_range(const struct rt_driver *driver, const void *symbol, size_t offset,
                            size_t count, CUdeviceptr *address);

/* The driver's array format for a channel description, and the reverse. 0 channels: not
 * expressible. */
unsigned rt_array_format(const struct cudaChannelFormatDesc *desc, CUarray_format *format);
struct cudaChannelFormatDesc rt_channel_desc(CUarray_format format, unsigned channels);

/* The driver's form of a 3D copy; the context fields stay unused. */
cudaError_t rt_copy_3d(const struct rt_driver *driver, const struct cudaMemcpy3DParms *params,
                       CUDA_MEMCPY3D *out);

/* Whether the kind of a copy is valid; cudaMemcpyDefault leaves the sides open. */
static inline int rt_kind_is_valid(enum cudaMemcpyKind kind)
{
    return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault;
}

static inline int rt_kind_is_from_host(enum cudaMemcpyKind kind)
{
    return kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice;
}

static inline int rt_kind_is_to_host(enum cudaMemcpyKind kind)
{
    return kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost;
}

/* An exported function. In C it is named rt_<name>, so that it cannot clash with the public
 * headers' prototypes (which differ between 12 and 13); the symbol is <name>. The version script,
 * or the hidden visibility of the static library, decides whether it is exported. */
#ifdef RT_STATIC
#    define RT_VISIBLE __attribute__((visibility("hidden")))
#else
#    define RT_VISIBLE __attribute__((visibility("default")))
#endif
#define RT_EXPORT(type, name, params)                \
    RT_VISIBLE type rt_##name params __asm__(#name); \
    type rt_##name params
#define RT_API(name, params) RT_EXPORT(cudaError_t, name, params)

/* A function in two stream flavours; `suffix` is the end of its per-thread variant's name. */
#if RT_PER_THREAD
#    define RT_STREAM_API(name, suffix, params)                         \
        RT_VISIBLE cudaError_t rt_##name params __asm__(#name #suffix); \
        cudaError_t rt_##name params
#else
#    define RT_STREAM_API(name, suffix, params) RT_API(name, params)
#endif

/* One call of the driver, as an expression of type cudaError_t that does not touch the last error.
 */
#define RT_TRY(driver, function, ...)                               \
    ((driver)->function ? rt_error((driver)->function(__VA_ARGS__)) \
                        : cudaErrorCallRequiresNewerDriver)

/* The whole body of most functions: enter, call the driver, note the error. */
#define RT_CALL(function, ...) RT_CALL_AFTER(rt_enter, function, __VA_ARGS__)
/* The same for functions that need no context. */
#define RT_CALL_WITHOUT_CONTEXT(function, ...) RT_CALL_AFTER(rt_driver_get, function, __VA_ARGS__)
#define RT_CALL_AFTER(enter, function, ...)                  \
    __extension__({                                          \
        const struct rt_driver *driver_ = NULL;              \
        cudaError_t error_ = enter(RT_FLAVOUR, &driver_);    \
        if (error_ == cudaSuccess) {                         \
            error_ = RT_TRY(driver_, function, __VA_ARGS__); \
        }                                                    \
        rt_note(error_);                                     \
    })

#endif
