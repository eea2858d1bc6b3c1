/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of cuSOLVER's double that must return something: handles, the streams set in them,
 * and the size of a workspace. build.py makes all others of cuSOLVER; they return success and
 * compute nothing. */
#include <stddef.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

/* Values of cusolverStatus_t, as in cusolver_common.h. */
typedef enum { SUCCESS = 0, ALLOC_FAILED = 2, INVALID_VALUE = 3 } status_t;

struct handle {
    void *stream;
};

EXPORT status_t cusolverDnCreate(struct handle **handle)
{
    if (!handle) {
        return INVALID_VALUE;
    }
    *handle = calloc(1, sizeof(**handle));
    return *handle ? SUCCESS : ALLOC_FAILED;
}

EXPORT status_t cusolverDnDestroy(struct handle *handle)
{
    free(handle);
    return SUCCESS;
}

EXPORT status_t cusolverDnSetStream(struct handle *handle, void *stream)
{
    if (!handle) {
        return INVALID_VALUE;
    }
    handle->stream = stream;
    return SUCCESS;
}

EXPORT status_t cusolverDnGetStream(struct handle *handle, void **stream)
{
    if (!handle || !stream) {
        return INVALID_VALUE;
    }
    *stream = handle->stream;
    return SUCCESS;
}

/* The signatures are those of cusolverDn.h; the size of a workspace is invented. */
static status_t want(int elements, int *workspace)
{
    if (!workspace) {
        return INVALID_VALUE;
    }
    *workspace = elements > 0 ? elements : 1;
    return SUCCESS;
}

#define WORKSPACES(letter)                                                                       \
    EXPORT status_t cusolverDn##letter##potrf_bufferSize(void *handle, int uplo, int n,          \
                                                         const void *a, int lda, int *workspace) \
    {                                                                                            \
        (void)handle, (void)uplo, (void)a, (void)lda;                                            \
        return want(n, workspace);                                                               \
    }                                                                                            \
    EXPORT status_t cusolverDn##letter##getrf_bufferSize(void *handle, int m, int n,             \
                                                         const void *a, int lda, int *workspace) \
    {                                                                                            \
        (void)handle, (void)m, (void)a, (void)lda;                                               \
        return want(n, workspace);                                                               \
    }                                                                                            \
    EXPORT status_t cusolverDn##letter##geqrf_bufferSize(void *handle, int m, int n,             \
                                                         const void *a, int lda, int *workspace) \
    {                                                                                            \
        (void)handle, (void)m, (void)a, (void)lda;                                               \
        return want(n, workspace);                                                               \
    }                                                                                            \
    EXPORT status_t cusolverDn##letter##gesvd_bufferSize(void *handle, int m, int n,             \
                                                         int *workspace)                         \
    {                                                                                            \
        (void)handle, (void)m;                                                                   \
        return want(n, workspace);                                                               \
    }

WORKSPACES(S)
WORKSPACES(D)
WORKSPACES(C)
WORKSPACES(Z)
