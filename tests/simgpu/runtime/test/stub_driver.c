/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 with entry points only: it answers as little as the runtime needs to go on, and
 * records what it was asked for. STUB_VERSION is its version (default 13.2), and STUB_LACKS names a
 * function that it does not have. */
#include <cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stub_driver.h"

#define EXPORT __attribute__((visibility("default")))

static struct stub_question questions[4096];
static size_t question_count;
static int initializations;

EXPORT size_t stub_questions(const struct stub_question **out)
{
    *out = questions;
    return question_count;
}

EXPORT int stub_initializations(void)
{
    return initializations;
}

static int version(void)
{
    const char *text = getenv("STUB_VERSION");
    return text ? atoi(text) : 13020;
}

EXPORT CUresult cuDriverGetVersion(int *out)
{
    *out = version();
    return CUDA_SUCCESS;
}

static CUresult stub_init(unsigned flags)
{
    (void)flags;
    initializations++;
    return CUDA_SUCCESS;
}

static CUresult stub_count(int *count)
{
    *count = 1;
    return CUDA_SUCCESS;
}

static CUresult stub_device(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUcontext current;

static CUresult stub_retain(CUcontext *context, CUdevice device)
{
    (void)device;
    *context = (CUcontext)questions;
    return CUDA_SUCCESS;
}

static CUresult stub_get_current(CUcontext *context)
{
    *context = current;
    return CUDA_SUCCESS;
}

static CUresult stub_set_current(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

static CUresult stub_alloc(CUdeviceptr *pointer, size_t size)
{
    *pointer = size;
    return CUDA_SUCCESS;
}

static const struct {
    const char *symbol;
    void *function;
} functions[] = {
    {"cuInit", (void *)stub_init},
    {"cuDriverGetVersion", (void *)cuDriverGetVersion},
    {"cuDeviceGetCount", (void *)stub_count},
    {"cuDeviceGet", (void *)stub_device},
    {"cuDevicePrimaryCtxRetain", (void *)stub_retain},
    {"cuCtxGetCurrent", (void *)stub_get_current},
    {"cuCtxSetCurrent", (void *)stub_set_current},
    {"cuMemAlloc", (void *)stub_alloc},
};

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int cuda_version,
                                    cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    if (question_count < sizeof(questions) / sizeof(questions[0])) {
        struct stub_question *question = &questions[question_count++];
        snprintf(question->symbol, sizeof(question->symbol), "%s", symbol);
        question->version = cuda_version;
        question->flags = flags;
    }
    const char *lacks = getenv("STUB_LACKS");
    *function = NULL;
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        if (strcmp(functions[i].symbol, symbol) == 0 && (!lacks || strcmp(lacks, symbol) != 0)) {
            *function = functions[i].function;
        }
    }
    if (status) {
        *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    return CUDA_SUCCESS;
}
