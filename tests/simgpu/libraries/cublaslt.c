/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of cuBLASLt's double that must return something: a caller takes one algorithm from
 * the heuristic, and fails if there is none. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "captured.h"

/* A double that is made for a program's own libraries replaces this by their version. */
__attribute__((weak)) const int simcublas_version = 130401;

#define EXPORT __attribute__((visibility("default")))

/* Values of cublasStatus_t, as in cublas_api.h. */
typedef enum { STATUS_SUCCESS = 0, STATUS_ALLOC_FAILED = 3, STATUS_INVALID_VALUE = 7 } status_t;

/* The layouts of cublasLtMatmulAlgo_t and cublasLtMatmulHeuristicResult_t in cublasLt.h. */
typedef struct {
    uint64_t data[8];
} algorithm_t;

typedef struct {
    algorithm_t algorithm;
    size_t workspace_bytes;
    status_t state;
    float waves;
    int reserved[4];
} heuristic_t;

/* Attributes that a caller may read back: their places in an object, and their bytes. The
 * enumerations in cublasLt.h number them from 0. */
struct attribute {
    size_t offset, bytes;
};

/* In the 64 opaque bytes (more in newer versions), which the caller may provide. */
struct layout {
    uint32_t type;
    int32_t order;
    uint64_t rows, columns;
    int64_t step;
    int32_t batches;
    uint32_t batch_mode;
    int64_t batch_step, plane_offset;
};

struct transform {
    int32_t scale_type, pointer_mode, operation_a, operation_b;
};

#define PLACE(type, member)                                    \
    {                                                          \
        offsetof(type, member), sizeof(((type *)NULL)->member) \
    }

static const struct attribute layout_attributes[] = {
    PLACE(struct layout, type),       PLACE(struct layout, order),
    PLACE(struct layout, rows),       PLACE(struct layout, columns),
    PLACE(struct layout, step),       PLACE(struct layout, batches),
    PLACE(struct layout, batch_step), PLACE(struct layout, plane_offset),
    PLACE(struct layout, batch_mode),
};

static const struct attribute transform_attributes[] = {
    PLACE(struct transform, scale_type),
    PLACE(struct transform, pointer_mode),
    PLACE(struct transform, operation_a),
    PLACE(struct transform, operation_b),
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static status_t set_attribute(void *object, const struct attribute *all, size_t count,
                              unsigned int which, const void *value, size_t bytes)
{
    if (!object || !value || which >= count || bytes != all[which].bytes) {
        return STATUS_INVALID_VALUE;
    }
    memcpy((char *)object + all[which].offset, value, bytes);
    return STATUS_SUCCESS;
}

/* bytes 0: only returns the size. */
static status_t get_attribute(const void *object, const struct attribute *all, size_t count,
                              unsigned int which, void *value, size_t bytes, size_t *written)
{
    if (!object || which >= count || (bytes == 0 && !written) ||
        (bytes > 0 && (!value || bytes != all[which].bytes))) {
        return STATUS_INVALID_VALUE;
    }
    if (bytes > 0) {
        memcpy(value, (const char *)object + all[which].offset, bytes);
    }
    if (written) {
        *written = all[which].bytes;
    }
    return STATUS_SUCCESS;
}

/* Descriptors and preferences are opaque to the caller. The double keeps nothing in them, but each
 * must be an object of its own. */
static status_t new_object(void **object)
{
    if (!object) {
        return STATUS_INVALID_VALUE;
    }
    *object = calloc(1, 64);
    return *object ? STATUS_SUCCESS : STATUS_ALLOC_FAILED;
}

static status_t drop_object(void *object)
{
    free(object);
    return STATUS_SUCCESS;
}

EXPORT status_t cublasLtCreate(void **handle)
{
    return new_object(handle);
}

EXPORT status_t cublasLtDestroy(void *handle)
{
    return drop_object(handle);
}

EXPORT status_t cublasLtMatmulDescCreate(void **descriptor, int compute_type, int scale_type)
{
    (void)compute_type, (void)scale_type;
    return new_object(descriptor);
}

EXPORT status_t cublasLtMatmulDescDestroy(void *descriptor)
{
    return drop_object(descriptor);
}

EXPORT status_t cublasLtMatrixLayoutInit_internal(void *layout, size_t bytes, int type,
                                                  uint64_t rows, uint64_t columns, int64_t step)
{
    if (!layout || bytes < sizeof(struct layout)) {
        return STATUS_INVALID_VALUE;
    }
    *(struct layout *)layout = (struct layout){
        .type = (uint32_t)type, .rows = rows, .columns = columns, .step = step, .batches = 1};
    return STATUS_SUCCESS;
}

EXPORT status_t cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t columns,
                                           int64_t step)
{
    status_t status = new_object(layout);
    return status != STATUS_SUCCESS
               ? status
               : cublasLtMatrixLayoutInit_internal(*layout, sizeof(struct layout), type, rows,
                                                   columns, step);
}

EXPORT status_t cublasLtMatrixLayoutSetAttribute(void *layout, unsigned int which,
                                                 const void *value, size_t bytes)
{
    return set_attribute(layout, layout_attributes, COUNT(layout_attributes), which, value, bytes);
}

EXPORT status_t cublasLtMatrixLayoutGetAttribute(const void *layout, unsigned int which,
                                                 void *value, size_t bytes, size_t *written)
{
    return get_attribute(layout, layout_attributes, COUNT(layout_attributes), which, value, bytes,
                         written);
}

EXPORT status_t cublasLtMatrixTransformDescInit_internal(void *transform, size_t bytes,
                                                         int scale_type)
{
    if (!transform || bytes < sizeof(struct transform)) {
        return STATUS_INVALID_VALUE;
    }
    *(struct transform *)transform = (struct transform){.scale_type = scale_type};
    return STATUS_SUCCESS;
}

EXPORT status_t cublasLtMatrixTransformDescCreate(void **transform, int scale_type)
{
    status_t status = new_object(transform);
    return status != STATUS_SUCCESS ? status
                                    : cublasLtMatrixTransformDescInit_internal(
                                          *transform, sizeof(struct transform), scale_type);
}

EXPORT status_t cublasLtMatrixTransformDescDestroy(void *transform)
{
    return drop_object(transform);
}

EXPORT status_t cublasLtMatrixTransformDescSetAttribute(void *transform, unsigned int which,
                                                        const void *value, size_t bytes)
{
    return set_attribute(transform, transform_attributes, COUNT(transform_attributes), which, value,
                         bytes);
}

EXPORT status_t cublasLtMatrixTransformDescGetAttribute(const void *transform, unsigned int which,
                                                        void *value, size_t bytes, size_t *written)
{
    return get_attribute(transform, transform_attributes, COUNT(transform_attributes), which, value,
                         bytes, written);
}

EXPORT status_t cublasLtMatrixLayoutDestroy(void *layout)
{
    return drop_object(layout);
}

EXPORT status_t cublasLtMatmulPreferenceCreate(void **preference)
{
    return new_object(preference);
}

EXPORT status_t cublasLtMatmulPreferenceDestroy(void *preference)
{
    return drop_object(preference);
}

static void fill(heuristic_t *result)
{
    memset(result, 0, sizeof(*result));
    result->state = STATUS_SUCCESS;
    result->waves = 1;
}

EXPORT status_t cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b,
                                               void *c, void *d, void *preference, int wanted,
                                               heuristic_t *results, int *found)
{
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)preference;
    if (wanted < 1 || !results || !found) {
        return STATUS_INVALID_VALUE;
    }
    fill(&results[0]);
    *found = 1;
    return STATUS_SUCCESS;
}

EXPORT status_t cublasLtMatmulAlgoCheck(void *handle, void *operation, void *a, void *b, void *c,
                                        void *d, const algorithm_t *algorithm, heuristic_t *result)
{
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d;
    fill(result);
    result->algorithm = *algorithm;
    return STATUS_SUCCESS;
}

EXPORT status_t cublasLtMatmulAlgoConfigGetAttribute(const algorithm_t *algorithm, int attribute,
                                                     void *value, size_t bytes, size_t *written)
{
    (void)algorithm, (void)attribute;
    memset(value, 0, bytes);
    if (written) {
        *written = bytes;
    }
    return STATUS_SUCCESS;
}

EXPORT status_t cublasLtMatmul(void *handle, void *operation, const void *alpha, const void *a,
                               void *a_layout, const void *b, void *b_layout, const void *beta,
                               const void *c, void *c_layout, void *d, void *d_layout,
                               const algorithm_t *algorithm, void *workspace,
                               size_t workspace_bytes, CUstream stream)
{
    (void)handle, (void)operation, (void)alpha, (void)a, (void)a_layout, (void)b, (void)b_layout;
    (void)beta, (void)c, (void)c_layout, (void)d, (void)d_layout, (void)algorithm;
    (void)workspace, (void)workspace_bytes;
    simcublas_queue(stream);
    return STATUS_SUCCESS;
}

EXPORT size_t cublasLtGetVersion(void)
{
    return simcublas_version;
}
