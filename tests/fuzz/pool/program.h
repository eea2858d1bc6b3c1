/* SPDX-License-Identifier: Apache-2.0 */
/* An actor: a program that asks the pool for blocks of every size, uses them on its streams, frees
 * them in every order, and reports tensors in some of them, at addresses that suit nobody. */
#ifndef MEMSHIM_FUZZ_PROGRAM_H
#define MEMSHIM_FUZZ_PROGRAM_H

#include "stage.h"

enum { PROGRAM_BLOCKS = 1024, PROGRAM_TENSORS = 192 };

struct program_block {
    struct ms_block_info info;
    unsigned born; /* the place of its stream; ON_DEVICE */
    uint32_t used; /* a bit for each place whose stream was given work on it */
    unsigned kept; /* why nothing may be taken out of it: pinned, frozen */
    bool frozen;   /* a tensor of it was born while a stream captured */
};

struct program_tensor {
    ms_addr_t addr;
    uint64_t bytes;
    uint64_t block_id;
    uint64_t tag;  /* its contents */
    bool stranded; /* it could not be backed */
};

struct program {
    struct stage *stage;
    struct dice dice;
    struct program_block block[PROGRAM_BLOCKS];
    size_t blocks, most_blocks;
    struct program_tensor tensor[PROGRAM_TENSORS];
    size_t tensors;
    uint64_t largest_bytes;
    uint64_t next_tag;
    uint64_t shrinks; /* blocks that it frees next, having been refused one */
};

void program_begin(struct program *program, struct stage *stage, uint64_t seed,
                   uint64_t largest_bytes);
void program_step(struct program *program);

/* Frees everything. */
void program_leave(struct program *program);

#endif
