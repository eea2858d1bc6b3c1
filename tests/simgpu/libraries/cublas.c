/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of cuBLAS's double that must return something.
 *
 * A handle gives back what it was set to, and results that a caller reads on the host are written.
 * build.py generates all other functions that PyTorch imports; they only return success. */
#include <cuda.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "captured.h"

/* A double that is made for a program's own libraries replaces this by their version. */
__attribute__((weak)) const int simcublas_version = 130401;

#define EXPORT __attribute__((visibility("default")))

/* Values of cublasStatus_t, as in cublas_api.h. */
typedef enum { STATUS_SUCCESS = 0, STATUS_ALLOC_FAILED = 3, STATUS_INVALID_VALUE = 7 } status_t;

/* Value of cublasPointerMode_t, as in cublas_api.h. */
enum { POINTER_MODE_HOST = 0 };

typedef struct {
    CUstream stream;
    int math_mode;
    int pointer_mode;
    int atomics_mode;
    int sm_count_target;
    CUdeviceptr workspace[2]; /* its own, until the caller sets another; 0: none */
} handle_t;

/* What a handle takes on an H200 (cuBLAS 13.1, driver 580.159.04). cuBLAS documents other sizes for
 * devices before Hopper, which were not measured. */
static const size_t workspace_bytes[2] = {(size_t)32 << 20, 1024};

static int has_workspace(void)
{
    CUdevice device;
    int major = 0;
    return cuCtxGetDevice(&device) == CUDA_SUCCESS &&
           cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) ==
               CUDA_SUCCESS &&
           major >= 9;
}

EXPORT status_t cublasDestroy_v2(handle_t *handle)
{
    for (int i = 0; i < 2; i++) {
        (void)cuMemFree(handle->workspace[i]); /* frees nothing if it is 0 */
    }
    free(handle);
    return STATUS_SUCCESS;
}

EXPORT status_t cublasCreate_v2(handle_t **handle)
{
    if (!handle) {
        return STATUS_INVALID_VALUE;
    }
    *handle = calloc(1, sizeof(**handle));
    if (!*handle) {
        return STATUS_ALLOC_FAILED;
    }
    for (int i = 0; i < 2 && has_workspace(); i++) {
        if (cuMemAlloc(&(*handle)->workspace[i], workspace_bytes[i]) != CUDA_SUCCESS) {
            (void)cublasDestroy_v2(*handle);
            return STATUS_ALLOC_FAILED;
        }
    }
    return STATUS_SUCCESS;
}

EXPORT status_t cublasGetVersion_v2(const handle_t *handle, int *version)
{
    (void)handle;
    *version = simcublas_version;
    return STATUS_SUCCESS;
}

EXPORT status_t cublasSetStream_v2(handle_t *handle, CUstream stream)
{
    handle->stream = stream;
    return STATUS_SUCCESS;
}

EXPORT status_t cublasGetStream_v2(const handle_t *handle, CUstream *stream)
{
    *stream = handle->stream;
    return STATUS_SUCCESS;
}

#define DEFINE_SETTING(setter, getter, field)                  \
    EXPORT status_t setter(handle_t *handle, int value)        \
    {                                                          \
        handle->field = value;                                 \
        return STATUS_SUCCESS;                                 \
    }                                                          \
    EXPORT status_t getter(const handle_t *handle, int *value) \
    {                                                          \
        *value = handle->field;                                \
        return STATUS_SUCCESS;                                 \
    }

DEFINE_SETTING(cublasSetMathMode, cublasGetMathMode, math_mode)
DEFINE_SETTING(cublasSetPointerMode_v2, cublasGetPointerMode_v2, pointer_mode)
DEFINE_SETTING(cublasSetAtomicsMode, cublasGetAtomicsMode, atomics_mode)
DEFINE_SETTING(cublasSetSmCountTarget, cublasGetSmCountTarget, sm_count_target)

EXPORT const char *cublasGetStatusString(status_t status)
{
    return status == STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "simulated cuBLAS failure";
}

EXPORT const char *cublasGetStatusName(status_t status)
{
    return cublasGetStatusString(status);
}

/* What build.py generates of the products of matrices calls this. */
status_t simcublas_product(const handle_t *handle)
{
    simcublas_queue(handle->stream);
    return STATUS_SUCCESS;
}

/* A scalar product is zero, like all results of the device. On the host it must be written. */
#define DEFINE_DOT(name, result_bytes)                                                            \
    EXPORT status_t name(const handle_t *handle, int n, const void *x, int x_step, const void *y, \
                         int y_step, void *result)                                                \
    {                                                                                             \
        (void)n, (void)x, (void)x_step, (void)y, (void)y_step;                                    \
        if (handle->pointer_mode == POINTER_MODE_HOST) {                                          \
            memset(result, 0, result_bytes);                                                      \
        }                                                                                         \
        return STATUS_SUCCESS;                                                                    \
    }

DEFINE_DOT(cublasSdot_v2, 4)
DEFINE_DOT(cublasDdot_v2, 8)
DEFINE_DOT(cublasCdotu_v2, 8)
DEFINE_DOT(cublasCdotc_v2, 8)
DEFINE_DOT(cublasZdotu_v2, 16)
DEFINE_DOT(cublasZdotc_v2, 16)

/* Batched factorizations and solvers report bad arguments in an int on the host: none. */
#define DEFINE_GETRS(name)                                                                    \
    EXPORT status_t name(const handle_t *handle, int operation, int n, int columns,           \
                         const void *const *a, int a_step, const int *pivots, void *const *b, \
                         int b_step, int *info, int batch)                                    \
    {                                                                                         \
        (void)handle, (void)operation, (void)n, (void)columns, (void)a, (void)a_step;         \
        (void)pivots, (void)b, (void)b_step, (void)batch;                                     \
        *info = 0;                                                                            \
        return STATUS_SUCCESS;                                                                \
    }

DEFINE_GETRS(cublasSgetrsBatched)
DEFINE_GETRS(cublasDgetrsBatched)
DEFINE_GETRS(cublasCgetrsBatched)
DEFINE_GETRS(cublasZgetrsBatched)

#define DEFINE_GEQRF(name)                                                                 \
    EXPORT status_t name(const handle_t *handle, int m, int n, void *const *a, int a_step, \
                         void *const *tau, int *info, int batch)                           \
    {                                                                                      \
        (void)handle, (void)m, (void)n, (void)a, (void)a_step, (void)tau, (void)batch;     \
        *info = 0;                                                                         \
        return STATUS_SUCCESS;                                                             \
    }

DEFINE_GEQRF(cublasSgeqrfBatched)
DEFINE_GEQRF(cublasDgeqrfBatched)
DEFINE_GEQRF(cublasCgeqrfBatched)
DEFINE_GEQRF(cublasZgeqrfBatched)

#define DEFINE_GELS(name)                                                                      \
    EXPORT status_t name(const handle_t *handle, int operation, int m, int n, int columns,     \
                         void *const *a, int a_step, void *const *c, int c_step, int *info,    \
                         int *device_info, int batch)                                          \
    {                                                                                          \
        (void)handle, (void)operation, (void)m, (void)n, (void)columns, (void)a, (void)a_step; \
        (void)c, (void)c_step, (void)device_info, (void)batch;                                 \
        *info = 0;                                                                             \
        return STATUS_SUCCESS;                                                                 \
    }

DEFINE_GELS(cublasSgelsBatched)
DEFINE_GELS(cublasDgelsBatched)
DEFINE_GELS(cublasCgelsBatched)
DEFINE_GELS(cublasZgelsBatched)
