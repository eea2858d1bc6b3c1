/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL as a library under another name, or linked into a program: by the driver, or, with
 * COMM_RUNTIME, by the runtime's shared library. The work is done by a function of its own, as
 * NCCL's is. */
#include "comm.h"

#include <cuda.h>

#ifdef COMM_RUNTIME
int cudaMalloc(void **at, size_t bytes);
#endif

struct ncclComm {
    size_t bytes;
};

__attribute__((noinline)) static int allocate(struct ncclComm *comm, uint64_t *at)
{
#ifdef COMM_RUNTIME
    void *found = NULL;
    int result = cudaMalloc(&found, comm->bytes);
    *at = (uint64_t)(uintptr_t)found;
#else
    CUdeviceptr found = 0;
    int result = (int)cuMemAlloc(&found, comm->bytes);
    *at = found;
#endif
    comm->bytes = 0; /* no tail call: the frame stays */
    return result;
}

__attribute__((visibility("default"), noinline)) int ncclCommInitRank(uint64_t *at, size_t bytes)
{
    struct ncclComm comm = {bytes};
    int result = allocate(&comm, at);
    return result + (int)comm.bytes;
}
