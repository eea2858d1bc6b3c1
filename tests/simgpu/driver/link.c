/* SPDX-License-Identifier: Apache-2.0 */
/* The linker of device code. It compiles nothing: its result is an image that, like any other, has
 * a function of any name (simgpu.h). */
#include "link.h"

#include "context.h"
#include "entry.h"

#include <unistd.h>

static char linked[] = "what the linker of the simulated GPU made";

static bool is_input(CUjitInputType type)
{
    return type >= CU_JIT_INPUT_CUBIN && type < CU_JIT_NUM_INPUT_TYPES;
}

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option *options, void **optionValues,
                         CUlinkState *stateOut)
{
    SIM_ENTER(cuLinkCreate_v2);
    SIM_CURRENT(context);
    (void)context;
    if (!stateOut) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *stateOut = sim_object_new(&sim_links);
    return *stateOut ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size,
                          const char *name, unsigned int numOptions, CUjit_option *options,
                          void **optionValues)
{
    SIM_ENTER(cuLinkAddData_v2);
    if (!sim_object_is(&sim_links, state)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    return data && size > 0 && is_input(type) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path,
                          unsigned int numOptions, CUjit_option *options, void **optionValues)
{
    SIM_ENTER(cuLinkAddFile_v2);
    if (!sim_object_is(&sim_links, state)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!path || !is_input(type)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return access(path, R_OK) == 0 ? CUDA_SUCCESS : CUDA_ERROR_FILE_NOT_FOUND;
}

CUresult cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut)
{
    SIM_ENTER(cuLinkComplete);
    if (!sim_object_is(&sim_links, state)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!cubinOut) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *cubinOut = linked;
    if (sizeOut) {
        *sizeOut = sizeof linked;
    }
    return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state)
{
    SIM_ENTER(cuLinkDestroy);
    if (!sim_object_is(&sim_links, state)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    sim_object_free(&sim_links, state);
    return CUDA_SUCCESS;
}
