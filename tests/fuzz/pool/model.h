/* SPDX-License-Identifier: Apache-2.0 */
/* A naive model of what must be true of a pool, its arenas and its proxies: plain arrays, one cell
 * for each granule of addresses. It hears of backing twice, from the calls that reach the device
 * and from the events, and of what lives from whoever allocates; it never asks the pool.
 *
 * Thread-safe; its lock is taken last, so every function may be called from the sink. */
#ifndef MEMSHIM_FUZZ_MODEL_H
#define MEMSHIM_FUZZ_MODEL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/device/budget.h"
#include "allocator/pool.h"

#define KIB     ((uint64_t)1 << 10)
#define MIB     ((uint64_t)1 << 20)
#define GRANULE (2 * MIB)

enum { MODEL_BLOCKS = 4096, MODEL_CELLS = 1 << 17, MODEL_PLAIN_CHUNKS = 1024 };

/* What lies on a granule, counted. */
enum model_touch {
    MODEL_LIVE,     /* live bytes: of blocks that are no arena, and of tensors */
    MODEL_ARENA,    /* blocks that are arenas, and pages that a framework mapped */
    MODEL_INSIDE,   /* those of them that hold the whole granule; by MODEL_ARENA */
    MODEL_KEPT,     /* things that were pinned or frozen */
    MODEL_PINNED,   /* those of them whose identity may be known */
    MODEL_STRANDED, /* tensors that could not be backed at their allocation */
    MODEL_TOUCHES
};

struct model_cell {
    ms_handle_t chunk; /* mapped here by the calls; 0: nothing */
    ms_handle_t told;  /* and by the events */
    bool access;
    uint32_t touch[MODEL_TOUCHES];
};

struct model_chunk {
    uint64_t bytes; /* 0: none of this handle is there, by the events */
    ms_addr_t addr; /* 0: not mapped */
    ms_addr_t also; /* where views are allowed, or while it moves: its other place; 0: none */
    ms_handle_t handle;
    enum ms_location location;
};

struct model_block {
    ms_addr_t addr;
    uint64_t bytes;
};

/* What the events add up to. */
struct model_recorded {
    uint64_t device_bytes, host_bytes, host_mapped_bytes, chunks, mappings;
    uint64_t blocks, block_bytes, arenas;
    uint64_t tensors, tensor_bytes;
    uint64_t pages, page_bytes; /* proxies mapped */
    uint64_t frozen;
    uint64_t down_bytes, up_bytes, spills, promotions;
    uint64_t last_id;
};

struct model {
    pthread_mutex_t lock;
    bool plain;                /* no virtual memory management: no cells */
    struct ms_budget *budget;  /* null: not compared at each event */
    ms_addr_t first_addr;      /* of the first cell */
    struct model_cell *cell;   /* MODEL_CELLS */
    size_t cells;              /* used */
    struct model_chunk *chunk; /* by handle */
    size_t chunks, chunk_room; /* entries used, and allocated */
    struct model_chunk plain_chunk[MODEL_PLAIN_CHUNKS];
    struct model_block block[MODEL_BLOCKS]; /* by address */
    size_t blocks;
    uint64_t page_bytes; /* the pool's (ms_pool_config); 0: none */
    bool views;          /* chunks of one granule may be mapped twice */
    bool over;           /* the pool goes, with all that lives in it */
    bool nothing_taken;  /* from now on, out of arenas: reports were found wrong */
    bool halted;         /* the device is held: backing may change under what lives */
    struct model_recorded told;
    char wrong[320]; /* the first thing that was; empty for none */
};

/* False when the host has no memory. budget may be null. */
bool model_begin(struct model *model, bool plain, struct ms_budget *budget);
void model_end(struct model *model);

__attribute__((format(printf, 2, 3))) void model_wrong(struct model *model, const char *format,
                                                       ...);

/* The sink. */
void model_event(void *ctx, const struct ms_event *event);

/* The calls that reached the device. `unmapping` before the
 * call: nothing that lives or is kept may lie there. */
void model_mapped(struct model *model, ms_addr_t addr, uint64_t bytes, ms_handle_t chunk);
void model_accessed(struct model *model, ms_addr_t addr, uint64_t bytes);
void model_unmapping(struct model *model, ms_addr_t addr, uint64_t bytes);
void model_unmapped(struct model *model, ms_addr_t addr, uint64_t bytes);

/* The device is held from now on, or no longer: all that lives must have its backing again. */
void model_halted(struct model *model, bool halted);

/* A block was handed out: apart from every other, aligned, as asked for, and backed. */
void model_add_block(struct model *model, const struct ms_request *request,
                     const struct ms_block_info *info);
void model_remove_block(struct model *model, ms_addr_t addr);
bool model_is_block(struct model *model, ms_addr_t addr);

/* Something lies on these addresses from now on (by 1), or no longer (by -1). */
void model_touch(struct model *model, enum model_touch what, ms_addr_t addr, uint64_t bytes,
                 int by);

/* Bytes of chunks on the host, by the events. */
uint64_t model_host_bytes(struct model *model);

/* Bytes in whole chunks on the device that lie under neither anything live nor any arena: what
 * could be moved if all work were done. */
uint64_t model_reclaimable_bytes(struct model *model);

/* Bytes in chunks of one granule that lie wholly in arenas, under nothing live and nothing kept:
 * what could be taken if all work were done. */
uint64_t model_takeable_bytes(struct model *model);

/* Of granules that lie wholly in arenas: without backing; backed, but under nothing live. */
struct model_arenas {
    uint64_t unbacked_bytes, hole_bytes;
};
struct model_arenas model_arena_sums(struct model *model);

/* Whether this chunk, and no other, is mapped on the whole range. */
bool model_is_chunk(struct model *model, ms_addr_t addr, uint64_t bytes, ms_handle_t chunk);

/* Compares what the events say is mapped with what the calls mapped, and what lives with both. */
void model_compare_cells(struct model *model);

#endif
