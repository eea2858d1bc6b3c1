/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of two processes that share device memory by cuIpcGetMemHandle: the owner allocates, and
 * the opener opens what it is given. Both know the contents. */
#ifndef MEMSHIM_TESTS_PROCESS_PAIR_H
#define MEMSHIM_TESTS_PROCESS_PAIR_H

#include <cuda.h>
#include <sys/types.h>

#include "say.h"

#define FLAGS CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

extern int talk;    /* to the other process */
extern pid_t other; /* of the owner: the opener */

struct offer {
    CUipcMemHandle handle;
    size_t bytes;
    size_t offset; /* from what the handle opens */
    unsigned char value;
};

void tell(const void *what, size_t bytes);
void hear(void *what, size_t bytes);
void say_go(void);
void await_go(void);

void use_device(void);
size_t free_bytes(void);
double seconds(void);

/* Each 4 KiB is told by its place, too: chunks in another order would show. */
void fill(CUdeviceptr at, size_t bytes, unsigned char value);
int holds(CUdeviceptr at, size_t bytes, unsigned char value);

CUdeviceptr block_of(size_t bytes, unsigned char value);

/* Names the block for the other process. */
void offer(CUdeviceptr at, size_t bytes, unsigned char value);

/* Opens what the other process offered; the address is that of its contents. */
CUdeviceptr take(struct offer *taken);

/* A thread that frees and fills COLD blocks in turn, each at least once. Where they are more than
 * the cap, something always has to go. */
enum { COLD = 24 };

struct mover {
    size_t bytes; /* of a block */
    volatile int stop;
    unsigned long rounds;
};

void *move_all(void *mover);

struct pair {
    const char *name;
    void (*owner)(void), (*opener)(void);
};

/* Plays the pair that the argument names. Returns the program's exit status. */
int run_pair(const struct pair *pairs, size_t count, int argc, char **argv);

#endif
