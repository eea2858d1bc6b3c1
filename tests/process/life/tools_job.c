/* SPDX-License-Identifier: Apache-2.0 */
/* Two threads use the device, and check what they get back: to be built by sanitizers and
 * profilers, and run under debuggers and tracers. */
#include <cuda.h>
#include <pthread.h>
#include <string.h>

#include "say.h"

enum { ROUNDS = 200, BYTES = 4096 };

static CUcontext context;

static void *work(void *argument)
{
    const int number = *(const int *)argument;
    unsigned char bytes[BYTES];
    CUstream stream;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr block, other;
        MUST(cuMemAlloc(&block, MIB));
        MUST(cuMemAllocAsync(&other, 100 * KIB * (size_t)(1 + i % 5), stream));
        MUST(cuMemsetD8(block, (unsigned char)(i + number), BYTES));
        MUST(cuMemcpyDtoD(other, block, BYTES));
        MUST(cuMemcpyDtoH(bytes, other, BYTES));
        for (int at = 0; at < BYTES; at++) {
            EXPECT(bytes[at] == (unsigned char)(i + number));
        }
        MUST(cuMemFreeAsync(other, stream));
        MUST(cuMemFree(block));
    }
    MUST(cuStreamDestroy(stream));
    return NULL;
}

int main(void)
{
    static const int numbers[] = {1, 100};
    pthread_t threads[2];
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    for (int i = 0; i < 2; i++) {
        MUST(pthread_create(&threads[i], NULL, work, (void *)&numbers[i]));
    }
    for (int i = 0; i < 2; i++) {
        MUST(pthread_join(threads[i], NULL));
    }
    (void)printf("done\n");
    return 0;
}
