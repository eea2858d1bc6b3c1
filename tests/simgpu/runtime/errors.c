/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last error of each thread, and the errors' names and texts.
 *
 * CUDA Runtime API, "Error Handling": cudaGetLastError returns the last error of any runtime call
 * in the same host thread and resets it to cudaSuccess; cudaPeekAtLastError does not reset it. An
 * error that "leaves the process in an inconsistent state" (driver_types.h) is sticky: it cannot be
 * reset, any further work will return it again.
 */
#include "runtime.h"

#include "error_table.h"

static _Thread_local cudaError_t last_error;

static int is_sticky(cudaError_t error)
{
    switch ((int)error) {
    case 214: /* ECC uncorrectable */
    case 220: /* NVLink uncorrectable */
    case 700: /* illegal address */
    case 702: /* launch timeout */
    case 710: /* assert */
    case 714: /* hardware stack error */
    case 715: /* illegal instruction */
    case 716: /* misaligned address */
    case 717: /* invalid address space */
    case 718: /* invalid program counter */
    case 719: /* launch failure */
    case 721: /* tensor memory leak */
        return 1;
    default:
        return 0;
    }
}

cudaError_t rt_note(cudaError_t error)
{
    if (error != cudaSuccess && !is_sticky(last_error)) {
        last_error = error;
    }
    return error;
}

void rt_forget_error(void)
{
    last_error = cudaSuccess;
}

RT_API(cudaGetLastError, (void))
{
    cudaError_t error = last_error;
    if (!is_sticky(error)) {
        last_error = cudaSuccess;
    }
    return error;
}

RT_API(cudaPeekAtLastError, (void))
{
    return last_error;
}

static const struct {
    int number;
    const char *name, *text;
} errors[] = {
#define RT_ERROR(number, name, text) {number, name, text},
    RT_ERROR_TABLE(RT_ERROR)
#undef RT_ERROR
};

static const char unrecognized[] = "unrecognized error code";

RT_EXPORT(const char *, cudaGetErrorName, (cudaError_t error))
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].number == (int)error) {
            return errors[i].name;
        }
    }
    return unrecognized;
}

RT_EXPORT(const char *, cudaGetErrorString, (cudaError_t error))
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].number == (int)error) {
            return errors[i].text;
        }
    }
    return unrecognized;
}
