/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of one function, and launches of a graph, to be counted by an instrument.
 *
 * Arguments: launches of each. */
#include "driver.h"
#include "say.h"

int main(int argc, char **argv)
{
    EXPECT(argc == 2);
    unsigned long launches = strtoul(argv[1], NULL, 10);
    struct driver cu = driver_open();
    CUcontext context;
    CUmodule module;
    CUfunction function;
    MUST(cu.cuInit(0));
    MUST(cu.cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cu.cuCtxSetCurrent(context));
    MUST(cu.cuModuleLoadData(&module, "any"));
    MUST(cu.cuModuleGetFunction(&function, module, "function"));
    for (unsigned long i = 0; i < launches; i++) {
        MUST(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    }
    MUST(cu.cuCtxSynchronize());
    return 0;
}
