/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of cuSOLVER's double that must return something: handles, the streams set in them,
 * and the size of a workspace. build.py makes all others of cuSOLVER; they return success and
 * compute nothing. */
#include <stdarg.h>
#include <stdbool.h>
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

/* ---- how large a workspace has to be -----------------------------------------------------------
 *
 * The size is invented: as many elements as the matrix has columns. Where the answer goes is from
 * cusolverDn.h. The functions differ in what stands before it. On x86-64 each int and each pointer
 * takes one place, and floating-point numbers none of these, so that a function without a prototype
 * finds the answer by its place. */

enum { LARGEST_ELEMENT = 16 }; /* bytes, of a double complex */

struct places {
    unsigned columns, answer; /* the handle is argument 0 */
};

static long argument(va_list *rest, unsigned *at, unsigned wanted)
{
    long value = 0;
    while (*at < wanted) {
        value = va_arg(*rest, long);
        (*at)++;
    }
    return value;
}

static status_t want(struct places places, va_list *rest, bool in_bytes)
{
    unsigned at = 0;
    long columns = (int)argument(rest, &at, places.columns);
    void *answer = (void *)argument(rest, &at, places.answer);
    columns = columns > 0 ? columns : 1;
    if (!answer) {
        return INVALID_VALUE;
    }
    if (!in_bytes) {
        *(int *)answer = (int)columns;
        return SUCCESS;
    }
    size_t *on_host = va_arg(*rest, size_t *);
    *(size_t *)answer = (size_t)columns * LARGEST_ELEMENT;
    *on_host = 0;
    return SUCCESS;
}

#define SIZE(name, columns, answer, in_bytes)                                      \
    EXPORT status_t cusolverDn##name##_bufferSize(void *handle, ...)               \
    {                                                                              \
        va_list rest;                                                              \
        va_start(rest, handle);                                                    \
        status_t status = want((struct places){columns, answer}, &rest, in_bytes); \
        va_end(rest);                                                              \
        return status;                                                             \
    }
/* Some have another name for complex matrices. */
#define SIZES(real, complex, columns, answer) \
    SIZE(S##real, columns, answer, false)     \
    SIZE(D##real, columns, answer, false)     \
    SIZE(C##complex, columns, answer, false)  \
    SIZE(Z##complex, columns, answer, false)
/* Of any type: bytes on the device, and after that on the host. */
#define BYTES(name, columns, answer) SIZE(X##name, columns, answer, true)

SIZES(potrf, potrf, 2, 5)
SIZES(potri, potri, 2, 5)
SIZES(lauum, lauum, 2, 5)
SIZES(getrf, getrf, 2, 5)
SIZES(geqrf, geqrf, 2, 5)
SIZES(sytrf, sytrf, 1, 4)
SIZES(sytri, sytri, 2, 6)
SIZES(gesvd, gesvd, 2, 3)
SIZES(gebrd, gebrd, 2, 3)
SIZES(orgqr, ungqr, 2, 7)
SIZES(orgbr, ungbr, 3, 8)
SIZES(orgtr, ungtr, 2, 6)
SIZES(ormqr, unmqr, 4, 11)
SIZES(ormtr, unmtr, 5, 11)
SIZES(sytrd, hetrd, 2, 8)
SIZES(syevd, heevd, 3, 7)
SIZES(syevdx, heevdx, 4, 11)
SIZES(syevj, heevj, 3, 7)
SIZES(syevjBatched, heevjBatched, 3, 7)
SIZES(sygvd, hegvd, 4, 10)
SIZES(sygvdx, hegvdx, 5, 14)
SIZES(sygvj, hegvj, 4, 10)
SIZES(gesvdj, gesvdj, 4, 12)
SIZES(gesvdjBatched, gesvdjBatched, 3, 11)
SIZES(gesvdaStridedBatched, gesvdaStridedBatched, 4, 16)
BYTES(potrf, 3, 8)
BYTES(getrf, 3, 8)
BYTES(geqrf, 3, 10)
BYTES(trtri, 3, 7)
BYTES(sytrs, 2, 11)
BYTES(syevd, 4, 11)
BYTES(syevBatched, 4, 11)
BYTES(syevdx, 5, 17)
BYTES(stedc, 3, 11)
BYTES(geev, 4, 17)
BYTES(gesvd, 5, 18)
BYTES(gesvdp, 5, 18)
BYTES(larft, 4, 15)
BYTES(polar, 4, 12)
