/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks: a request to the pool, and the description of a block that it made. */
#ifndef MEMSHIM_ALLOCATOR_SPACE_BLOCK_H
#define MEMSHIM_ALLOCATOR_SPACE_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/device/device_ops.h"

/* The alignment of every block's address, and the unit that its size is rounded to. */
#define MS_BLOCK_ALIGNMENT_BYTES 512u

typedef struct ms_pool ms_pool_t;

/* The owner of blocks in the caller's terms. The caller makes it, and keeps it for as long as the
 * pool. Its blocks belong to one pool, whose state lock covers changes of the sums. Anyone may read
 * them, and set the high-water mark and the limit, at any time. Sums are of sizes rounded to
 * MS_BLOCK_ALIGNMENT_BYTES. */
struct ms_holder {
    _Atomic uint64_t used_bytes, used_high_bytes;
    _Atomic uint64_t limit_bytes; /* most bytes that its blocks may have together; 0: no limit */
    uint8_t kind;                 /* the caller's own value; never changes */
};

struct ms_request {
    uint64_t bytes;     /* > 0 */
    ms_stream_t stream; /* the stream that may use it at once; MS_STREAM_DEVICE: every stream may */
    struct ms_holder *holder; /* may be null */
    uint32_t site;
    bool may_wait;        /* false: never block for queued work (the calling thread captures) */
    bool no_stream_waits; /* do not make this stream wait for another */
};

struct ms_block_info {
    uint64_t id;
    struct ms_holder *holder;
    ms_addr_t addr;
    uint64_t bytes;     /* as asked for */
    ms_stream_t stream; /* of its allocation */
    uint32_t site;
    bool arena;
    bool pinned;
    bool marked; /* by ms_pool_mark */
};

/* visit is called with each chunk that a block or a page lies on, in the order of addresses, under
 * the pool's growth lock: it must not call the pool. False: it has no memory, and is not called
 * again. */
struct ms_chunk_visitor {
    bool (*visit)(void *ctx, ms_handle_t chunk, uint64_t bytes);
    void *ctx;
};

#endif
