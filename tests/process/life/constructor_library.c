/* SPDX-License-Identifier: Apache-2.0 */
/* A library whose constructor uses the device, as static objects of C++ do. */
#include "constructor_library.h"

#include "say.h"

static CUdeviceptr block;

__attribute__((constructor)) static void use_device(void)
{
    CUcontext context;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc(&block, MIB));
}

CUdeviceptr constructor_block(void)
{
    return block;
}
