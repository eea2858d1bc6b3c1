/* SPDX-License-Identifier: Apache-2.0 */
/* What a call may leave behind in its thread: says after which calls errno or a flag of a
 * floating-point operation was set. `quiet_job trap` has such operations end it by a signal. */
#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <fenv.h>
#include <stdbool.h>
#include <string.h>

#include "say.h"
#include "shim/memshim.h"

enum { BLOCKS = 24, ROUNDS = 100000 };

static bool trap;

/* The name up to the bracket. */
static void look(const char *call)
{
    const int error = errno;
    const int flags = trap ? 0 : fetestexcept(FE_ALL_EXCEPT);
    if (error != 0 || flags != 0) {
        (void)printf("%.*s: errno %d, flags %#x\n", (int)strcspn(call, "("), call, error, flags);
    }
}

#define QUIET(call)                                      \
    do {                                                 \
        errno = 0;                                       \
        (void)(trap ? 0 : feclearexcept(FE_ALL_EXCEPT)); \
        MUST(call);                                      \
        look(#call);                                     \
    } while (0)

/* More than the cap: some of it goes to the host, and comes back. */
static void use_blocks(CUstream stream)
{
    static unsigned char byte[BLOCKS];
    CUdeviceptr block[BLOCKS];
    size_t free_bytes, total_bytes;
    for (int i = 0; i < BLOCKS; i++) {
        QUIET(cuMemAllocAsync(&block[i], 4 * MIB + 512, stream));
        QUIET(cuMemsetD8Async(block[i], (unsigned char)i, 4 * MIB, stream));
        QUIET(cuMemGetInfo(&free_bytes, &total_bytes));
    }
    for (int i = 0; i < BLOCKS; i++) {
        QUIET(cuMemcpyDtoHAsync(&byte[i], block[i] + 12345, 1, stream));
    }
    QUIET(cuStreamSynchronize(stream));
    for (int i = 0; i < BLOCKS; i++) {
        EXPECT(byte[i] == i);
        QUIET(cuMemFreeAsync(block[i], stream));
    }
    QUIET(cuStreamSynchronize(stream));
}

static void use_interface(void)
{
    int (*read)(int, struct memshim_stats *) = NULL;
    void (*step)(void) = NULL;
    *(void **)&read = dlsym(RTLD_DEFAULT, "memshim_stats");
    *(void **)&step = dlsym(RTLD_DEFAULT, "memshim_step");
    for (int i = 0; read != NULL && i < 3; i++) {
        struct memshim_stats stats = {.size = sizeof stats};
        QUIET(read(0, &stats));
        QUIET((step(), 0));
    }
}

int main(int argc, char **argv)
{
    CUcontext context;
    CUstream stream;
    CUdeviceptr block;
    trap = argc == 2 && strcmp(argv[1], "trap") == 0;
    if (trap) {
        EXPECT(feenableexcept(FE_ALL_EXCEPT) == 0);
    }
    QUIET(cuInit(0));
    QUIET(cuDevicePrimaryCtxRetain(&context, 0));
    QUIET(cuCtxSetCurrent(context));
    QUIET(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    use_blocks(stream);
    use_interface();
    for (int i = 0; i < ROUNDS; i++) {
        QUIET(cuMemAllocAsync(&block, 1000 * (size_t)(1 + i % 7), stream));
        QUIET(cuMemFreeAsync(block, stream));
    }
    use_blocks(stream);
    use_interface();
    EXPECT(cuMemAlloc(&block, 100 * GIB) == CUDA_ERROR_OUT_OF_MEMORY);
    QUIET(cuMemAlloc(&block, MIB));
    QUIET(cuMemFree(block));
    (void)printf("done\n");
    return 0;
}
