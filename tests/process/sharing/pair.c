/* SPDX-License-Identifier: Apache-2.0 */
/* See pair.h. */
#include "pair.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int talk;
pid_t other;

void tell(const void *what, size_t bytes)
{
    EXPECT(write(talk, what, bytes) == (ssize_t)bytes);
}

void hear(void *what, size_t bytes)
{
    EXPECT(read(talk, what, bytes) == (ssize_t)bytes);
}

void say_go(void)
{
    tell("g", 1);
}

void await_go(void)
{
    char go = 0;
    hear(&go, 1);
}

void use_device(void)
{
    CUcontext context;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
}

void fill(CUdeviceptr at, size_t bytes, unsigned char value)
{
    unsigned char *host = malloc(bytes);
    EXPECT(host != NULL);
    for (size_t i = 0; i < bytes; i++) {
        host[i] = (unsigned char)(value + i / 4096 * 7);
    }
    MUST(cuMemcpyHtoD(at, host, bytes));
    /* From pageable memory it may return before the bytes have arrived, and another process's
       streams do not wait for this one's (API synchronization behavior). */
    MUST(cuCtxSynchronize());
    free(host);
}

int holds(CUdeviceptr at, size_t bytes, unsigned char value)
{
    unsigned char *host = malloc(bytes);
    int same = 1;
    EXPECT(host != NULL);
    MUST(cuMemcpyDtoH(host, at, bytes));
    for (size_t i = 0; i < bytes && same; i++) {
        same = host[i] == (unsigned char)(value + i / 4096 * 7);
    }
    free(host);
    return same;
}

CUdeviceptr block_of(size_t bytes, unsigned char value)
{
    CUdeviceptr at = 0;
    MUST(cuMemAlloc(&at, bytes));
    fill(at, bytes, value);
    return at;
}

void offer(CUdeviceptr at, size_t bytes, unsigned char value)
{
    struct offer made = {.bytes = bytes, .value = value};
    MUST(cuIpcGetMemHandle(&made.handle, at));
    tell(&made, sizeof made);
}

CUdeviceptr take(struct offer *taken)
{
    CUdeviceptr at = 0;
    hear(taken, sizeof *taken);
    MUST(cuIpcOpenMemHandle(&at, taken->handle, FLAGS));
    return at + taken->offset;
}

double seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

size_t free_bytes(void)
{
    size_t free_now = 0;
    size_t total = 0;
    MUST(cuMemGetInfo(&free_now, &total));
    return free_now;
}

void *move_all(void *argument)
{
    struct mover *mover = argument;
    CUdeviceptr blocks[COLD];
    use_device();
    for (int i = 0; i < COLD; i++) {
        blocks[i] = block_of(mover->bytes, (unsigned char)i);
    }
    while (!mover->stop || mover->rounds < COLD) {
        int i = (int)(mover->rounds++ * 7 % COLD);
        EXPECT(holds(blocks[i], mover->bytes, (unsigned char)i));
        MUST(cuMemFree(blocks[i]));
        blocks[i] = block_of(mover->bytes, (unsigned char)i);
    }
    for (int i = 0; i < COLD; i++) {
        EXPECT(holds(blocks[i], mover->bytes, (unsigned char)i));
    }
    return NULL;
}

int run_pair(const struct pair *pairs, size_t count, int argc, char **argv)
{
    int ends[2];
    EXPECT(argc == 2);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(argv[1], pairs[i].name) != 0) {
            continue;
        }
        MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends));
        other = fork();
        EXPECT(other >= 0);
        talk = ends[other == 0];
        MUST(close(ends[other != 0]));
        if (other == 0) {
            pairs[i].opener();
            return 0;
        }
        pairs[i].owner();
        int status = 0;
        EXPECT(waitpid(other, &status, 0) == other);
        EXPECT(status == 0 || strcmp(argv[1], "killed") == 0);
        (void)printf("%s holds\n", argv[1]);
        return 0;
    }
    return 2;
}
