/* A naive model of what must be true of a pool: plain arrays, searched from end to end or by
 * halving. It learns of chunks from the events, of blocks from the test, and never asks the pool.
 */
#ifndef MEMSHIM_FUZZ_MODEL_H
#define MEMSHIM_FUZZ_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/pool.h"

enum { MODEL_BLOCKS = 4096, MODEL_CHUNKS = 1 << 16, MODEL_STREAMS = 16 };

struct model_block {
    struct ms_block_info info;
    ms_stream_t born_on; /* its stream, or the one that went on behind it when that was destroyed */
    ms_stream_t used_on[MODEL_STREAMS]; /* streams that were given work on it */
    unsigned uses;
};

struct model_chunk {
    ms_handle_t handle;
    ms_addr_t addr; /* 0: not mapped */
    uint64_t bytes;
};

struct model {
    struct model_block block[MODEL_BLOCKS]; /* by address */
    size_t blocks;
    struct model_chunk chunk[MODEL_CHUNKS];
    size_t chunks;
    uint64_t chunk_bytes;     /* created and not released */
    uint64_t live_told_bytes; /* by the events of blocks */
    uint64_t blocks_told;
    uint64_t tensor_bytes, tensors; /* by the events of tensors */
    uint64_t last_id;
    char wrong[256]; /* the first thing that was; empty for none */
};

__attribute__((format(printf, 2, 3))) void model_wrong(struct model *model, const char *format,
                                                       ...);

/* The sink. */
void model_event(void *ctx, const struct ms_event *event);

/* A block was handed out: apart from every other, aligned, as asked for. Returns where it is kept.
 */
size_t model_add(struct model *model, const struct ms_request *request,
                 const struct ms_block_info *info);
void model_remove(struct model *model, size_t at);

/* Bytes of chunks that no live block touches: what could be moved if all work were done. */
uint64_t model_reclaimable_bytes(const struct model *model);

#endif
