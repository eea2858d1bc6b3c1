/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of cuBLASLt's double that must answer something: a caller takes one algorithm
 * from the heuristic and gives up where there is none.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What is made for a program's own libraries says theirs. */
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

/* Descriptors, layouts and preferences are opaque to the caller; the double has nothing to keep
 * in them, but each must be an object of its own. */
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

EXPORT status_t cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t columns,
                                           int64_t step)
{
    (void)type, (void)rows, (void)columns, (void)step;
    return new_object(layout);
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

EXPORT size_t cublasLtGetVersion(void)
{
    return simcublas_version;
}
