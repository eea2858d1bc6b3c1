/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks: what is asked of the pool, and what it says of one that it made. */
#ifndef MEMSHIM_ALLOCATOR_SPACE_BLOCK_H
#define MEMSHIM_ALLOCATOR_SPACE_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/device/device_ops.h"

/* Of every block's address, and the unit that its size is rounded to. */
#define MS_BLOCK_ALIGNMENT_BYTES 512u

typedef struct ms_pool ms_pool_t;

/* Whom blocks belong to, as the caller sees it: the caller makes it, and keeps it for as long as
 * the pool. Its blocks are of one pool, under whose state lock the sums change; they may be read,
 * and the high one and the limit set, at any time. Sums are of sizes rounded to
 * MS_BLOCK_ALIGNMENT_BYTES. */
struct ms_holder {
    _Atomic uint64_t used_bytes, used_high_bytes;
    _Atomic uint64_t limit_bytes; /* most that its blocks may have together; 0: no limit */
    uint8_t kind;                 /* the caller's; never changes */
};

struct ms_request {
    uint64_t bytes;     /* > 0 */
    ms_stream_t stream; /* the stream that may use it at once; MS_STREAM_DEVICE: every stream may */
    struct ms_holder *holder; /* may be null */
    uint32_t site;
    bool may_wait;        /* false: never block for work in flight (the calling thread captures) */
    bool no_stream_waits; /* no wait for another stream is inserted into this one */
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

#endif
