/* SPDX-License-Identifier: Apache-2.0 */
/* A program that bars a system call for itself, as sandboxes do, and then uses more memory than the
 * device has. Arguments: the call's number, "before" or "after" the device is first used. Says
 * whether the contents are right, or what was refused. */
#include <cuda.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>

#include "say.h"

enum { BLOCKS = 24 };

static void bar(long number)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof(rules) / sizeof(*rules), rules};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        (void)printf("no seccomp\n");
        exit(0);
    }
}

static CUdeviceptr allocate(void)
{
    CUdeviceptr block = 0;
    const CUresult result = cuMemAlloc(&block, 4 * MIB);
    if (result != CUDA_SUCCESS) {
        (void)printf("refused: %d\n", (int)result);
        exit(0);
    }
    return block;
}

int main(int argc, char **argv)
{
    CUcontext context;
    CUdeviceptr block[BLOCKS];
    unsigned char byte = 0;
    EXPECT(argc == 3);
    const long number = strtol(argv[1], NULL, 10);
    const bool before = strcmp(argv[2], "before") == 0;
    MUST(cuInit(0));
    if (before) {
        bar(number);
    }
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    block[0] = allocate();
    if (!before) {
        bar(number);
    }
    for (int i = 1; i < BLOCKS; i++) {
        block[i] = allocate();
    }
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemsetD8(block[i], (unsigned char)i, 4 * MIB));
    }
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemcpyDtoH(&byte, block[i] + 54321, 1));
        EXPECT(byte == i);
    }
    (void)printf("all right\n");
    return 0;
}
