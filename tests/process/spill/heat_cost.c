/* SPDX-License-Identifier: Apache-2.0 */
/* What a look at a launch of 16 parameters costs: nanoseconds, the least of many rounds.
 *
 * Arguments: the number of rounds, and the number of blocks of 64 KiB that the parameters point to,
 * 16 of them in turn. With 16 every launch has the same. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda.h>

#include "clock.h"
#include "gate_entry.h"
#include "say.h"

enum { PARAMETERS = 16, LAUNCHES = 512, BLOCKS_MAX = 2048 };

static CUdeviceptr block[BLOCKS_MAX];
static void *parameters[BLOCKS_MAX];

int main(int argc, char **argv)
{
    EXPECT(argc == 3);
    unsigned long rounds = strtoul(argv[1], NULL, 10);
    unsigned long blocks = strtoul(argv[2], NULL, 10);
    EXPECT(blocks >= PARAMETERS && blocks % PARAMETERS == 0 && blocks <= BLOCKS_MAX);
    CUcontext context;
    CUmodule module;
    CUfunction function;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, "simgpu-module\nkernel k 0:8 8:8 16:8 24:8 32:8 40:8 48:8 56:8 "
                                   "64:8 72:8 80:8 88:8 96:8 104:8 112:8 120:8\n"));
    MUST(cuModuleGetFunction(&function, module, "k"));
    for (unsigned long i = 0; i < blocks; i++) {
        MUST(cuMemAlloc(&block[i], 64 * KIB));
        parameters[i] = &block[i];
    }
    MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    uint64_t least_ns = UINT64_MAX;
    for (unsigned long round = 0; round < rounds; round++) {
        uint64_t start_ns = now_ns();
        for (unsigned long i = 0; i < LAUNCHES; i++) {
            gate_look(function, &parameters[i * PARAMETERS % blocks]);
        }
        uint64_t took_ns = now_ns() - start_ns;
        least_ns = took_ns < least_ns ? took_ns : least_ns;
    }
    (void)printf("%.1f\n", (double)least_ns / LAUNCHES);
    return 0;
}
