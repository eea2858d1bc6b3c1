/* SPDX-License-Identifier: Apache-2.0 */
/* A preload that tells the simulated GPU what PyTorch is about to read from it: which operator
 * reads, and of which type the values are. Kernels compute nothing there, so the values are not
 * those of a real GPU (SIMGPU_VALUES, simgpu.h).
 *
 * libtorch calls its own operators through its PLT, and the global scope is searched first:
 * functions of the same names here note the reader, and call the real ones. These are looked up at
 * the first call, because libtorch is not in the global scope. PyTorch's C interface gives a
 * tensor's properties (torch/csrc/inductor/aoti_torch/c/shim.h).
 *
 * Preloaded before memshim, so that it sees a tensor's allocation before it passes the report on.
 * Without PyTorch nothing here is called. */
#include "kept.h"
#include "simgpu.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

#pragma weak simgpu_read_as
#pragma weak simgpu_forget
#pragma weak simgpu_note_flag
#pragma weak simgpu_flag_of

#define TORCH_CUDA 1 /* c10::DeviceType::CUDA */

/* ---- allocations ----------------------------------------------------------------------------- */

#define USAGE _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE

EXPORT usage_t USAGE;

static void *real_in(const char *library, const char *name)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    void *found = handle ? dlsym(handle, name) : NULL;
    if (handle) {
        dlclose(handle);
    }
    return found;
}

#define TEXT_OF(name) #name
#define TEXT(name)    TEXT_OF(name)

usage_t *usage_next(void)
{
    static usage_t *next;
    if (!next) {
        next = (usage_t *)dlsym(RTLD_NEXT, TEXT(USAGE)); /* memshim's */
        next = next ? next : (usage_t *)real_in("libc10.so", TEXT(USAGE));
    }
    return next;
}

void USAGE(void *at, int64_t bytes, size_t allocated, size_t reserved, uint16_t device)
{
    usage_t *next = usage_next();
    if (bytes > 0 && (int8_t)(device & 0xff) == TORCH_CUDA && simgpu_forget) {
        simgpu_forget((uint64_t)at, (uint64_t)bytes);
    }
    if (next) {
        kept_report(next, at, bytes, allocated, reserved, device);
    }
}

/* ---- properties of a tensor ------------------------------------------------------------------ */

typedef const void tensor_t; /* at::Tensor */
typedef int32_t get_int_t(tensor_t *tensor, int32_t *value);
typedef int32_t get_long_t(tensor_t *tensor, int64_t *value);
typedef int32_t get_pointer_t(tensor_t *tensor, void **value);

static struct {
    bool known;
    get_int_t *dtype, *device;
    get_long_t *numel;
    get_pointer_t *data;
} about;

static void learn(void)
{
    if (!about.known) {
        about.dtype = (get_int_t *)real_in("libtorch_cpu.so", "aoti_torch_get_dtype");
        about.device = (get_int_t *)real_in("libtorch_cpu.so", "aoti_torch_get_device_type");
        about.numel = (get_long_t *)real_in("libtorch_cpu.so", "aoti_torch_get_numel");
        about.data = (get_pointer_t *)real_in("libtorch_cpu.so", "aoti_torch_get_data_ptr");
        about.known = true;
    }
}

static bool is_on_gpu(tensor_t *tensor)
{
    int32_t type = 0;
    return about.device && about.device(tensor, &type) == 0 && type == TORCH_CUDA;
}

static unsigned type_of(tensor_t *tensor)
{
    int32_t type = 0;
    return about.dtype && about.dtype(tensor, &type) == 0 ? (unsigned)type + 1 : 0;
}

/* ---- reads ----------------------------------------------------------------------------------- */

static void end_read(const struct simgpu_reader *before)
{
    if (simgpu_read_as) {
        simgpu_read_as(*before);
    }
}

/* Until the scope ends, which a C++ exception may end, too. */
#define READS(tensor, how, what, largest)                                                   \
    struct simgpu_reader before __attribute__((cleanup(end_read))) = {0};                   \
    learn();                                                                                \
    if (simgpu_read_as) {                                                                   \
        before = simgpu_read_as((struct simgpu_reader){0});                                 \
        simgpu_read_as(is_on_gpu(tensor) ? (struct simgpu_reader){(how), (what), (largest)} \
                                         : before);                                         \
    }                                                                                       \
    _Static_assert(1, "")

/* at::Tensor& copy_(at::Tensor &self, const at::Tensor &from, bool non_blocking) */
#define COPY _ZN2at4_ops5copy_4callERNS_6TensorERKS2_b
typedef void *copy_t(void *self, tensor_t *from, bool non_blocking);
EXPORT copy_t COPY;

/* For copies to the device the type is reported, too: bytes may be an object that ranks send each
 * other. */
void *COPY(void *self, tensor_t *from, bool non_blocking)
{
    static copy_t *next;
    next = next ? next : (copy_t *)real_in("libtorch_cpu.so", TEXT(COPY));
    learn();
    READS(is_on_gpu(from) ? from : self, SIMGPU_READER_COPY, type_of(self), 0);
    return next(self, from, non_blocking);
}

/* void _amp_foreach_non_finite_check_and_unscale_(ArrayRef<at::Tensor> grads,
 *                                                 at::Tensor &found_inf, const at::Tensor &scale)
 */
#define UNSCALE \
    _ZN2at4_ops42_amp_foreach_non_finite_check_and_unscale_4callEN3c108ArrayRefINS_6TensorEEERS4_RKS4_
typedef void unscale_t(const void *grads, size_t count, tensor_t *found_inf, tensor_t *scale);
EXPORT unscale_t UNSCALE;

void UNSCALE(const void *grads, size_t count, tensor_t *found_inf, tensor_t *scale)
{
    static unscale_t *next;
    void *at = NULL;
    next = next ? next : (unscale_t *)real_in("libtorch_cpu.so", TEXT(UNSCALE));
    learn();
    if (simgpu_note_flag && is_on_gpu(found_inf) && about.data && about.data(found_inf, &at) == 0) {
        simgpu_note_flag((uint64_t)at, sizeof(float), SIMGPU_FLAG_WRONG);
    }
    next(grads, count, found_inf, scale);
}

/* The results are constructed where the caller says, by the C++ convention on x86-64: in C that
 * address is the first parameter. On other architectures it is in a register that C cannot see. */
#ifdef __x86_64__
/* c10::Scalar _local_scalar_dense(const at::Tensor &self), of item(), bool(tensor) and the like */
#    define ITEM _ZN2at4_ops19_local_scalar_dense4callERKNS_6TensorE
/* at::Tensor nonzero(const at::Tensor &self), also of masks as indices */
#    define NONZERO _ZN2at4_ops7nonzero4callERKNS_6TensorE
typedef void *reader_t(void *result, tensor_t *self);
EXPORT reader_t ITEM;
EXPORT reader_t NONZERO;

void *ITEM(void *result, tensor_t *self)
{
    static reader_t *next;
    next = next ? next : (reader_t *)real_in("libtorch_cpu.so", TEXT(ITEM));
    READS(self, SIMGPU_READER_ITEM, type_of(self), 0);
    return next(result, self);
}

static uint64_t elements_of(tensor_t *tensor)
{
    int64_t count = 0;
    return about.numel && about.numel(tensor, &count) == 0 && count > 0 ? (uint64_t)count : 0;
}

void *NONZERO(void *result, tensor_t *self)
{
    static reader_t *next;
    next = next ? next : (reader_t *)real_in("libtorch_cpu.so", TEXT(NONZERO));
    learn();
    READS(self, SIMGPU_READER_SHAPE, SIMGPU_INT32, elements_of(self));
    return next(result, self);
}

/* at::Tensor isnan(const at::Tensor &self), isinf, isfinite, and any and all, which combine their
 * answers: one byte for each element. */
#    define ISNAN    _ZN2at4_ops5isnan4callERKNS_6TensorE
#    define ISINF    _ZN2at4_ops5isinf4callERKNS_6TensorE
#    define ISFINITE _ZN2at4_ops8isfinite4callERKNS_6TensorE
#    define ANY      _ZN2at4_ops3any4callERKNS_6TensorE
#    define ALL      _ZN2at4_ops3all4callERKNS_6TensorE
EXPORT reader_t ISNAN;
EXPORT reader_t ISINF;
EXPORT reader_t ISFINITE;
EXPORT reader_t ANY;
EXPORT reader_t ALL;

static void flag(tensor_t *tensor, enum simgpu_flag kind)
{
    void *at = NULL;
    learn();
    if (simgpu_note_flag && is_on_gpu(tensor) && about.data && about.data(tensor, &at) == 0) {
        simgpu_note_flag((uint64_t)at, elements_of(tensor), kind);
    }
}

static enum simgpu_flag flag_of(tensor_t *tensor)
{
    void *at = NULL;
    learn();
    return simgpu_flag_of && is_on_gpu(tensor) && about.data && about.data(tensor, &at) == 0
               ? simgpu_flag_of((uint64_t)at, elements_of(tensor))
               : SIMGPU_NO_FLAG;
}

/* Calls the real one, and notes what its result says. */
static void *answer(reader_t **next, const char *name, void *result, tensor_t *self,
                    enum simgpu_flag kind)
{
    *next = *next ? *next : (reader_t *)real_in("libtorch_cpu.so", name);
    (*next)(result, self);
    if (kind != SIMGPU_NO_FLAG) {
        flag(result, kind);
    }
    return result;
}

void *ISNAN(void *result, tensor_t *self)
{
    static reader_t *next;
    return answer(&next, TEXT(ISNAN), result, self, SIMGPU_FLAG_WRONG);
}

void *ISINF(void *result, tensor_t *self)
{
    static reader_t *next;
    return answer(&next, TEXT(ISINF), result, self, SIMGPU_FLAG_WRONG);
}

void *ISFINITE(void *result, tensor_t *self)
{
    static reader_t *next;
    return answer(&next, TEXT(ISFINITE), result, self, SIMGPU_FLAG_FINE);
}

void *ANY(void *result, tensor_t *self)
{
    static reader_t *next;
    return answer(&next, TEXT(ANY), result, self, flag_of(self));
}

void *ALL(void *result, tensor_t *self)
{
    static reader_t *next;
    return answer(&next, TEXT(ALL), result, self, flag_of(self));
}
#endif
