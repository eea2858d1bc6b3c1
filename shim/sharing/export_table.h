/* SPDX-License-Identifier: Apache-2.0 */
/* What the table of exports shares with the thread that answers other processes about them. */
#ifndef MEMSHIM_SHIM_SHARING_EXPORT_TABLE_H
#define MEMSHIM_SHIM_SHARING_EXPORT_TABLE_H

#include "shim/sharing/exports.h"
#include "shim/sharing/wire.h"

struct ms_export_chunk {
    CUmemGenericAllocationHandle_v1 handle;
    uint64_t bytes;
    size_t page; /* the number of the page that it is behind */
};

struct ms_export_part {
    struct ms_export_page page;
    enum {
        MS_PART_MAPPED,
        MS_PART_UNMAPPED, /* by the program; kept while the name is open anywhere */
        MS_PART_LET       /* its chunks are gone */
    } state;
};

/* Lock SHARING guards what changes: next, holds, listed, freed, unmapped, let_go and the parts'
 * states. */
struct ms_export {
    struct ms_export *next;
    struct ms_device *device;
    uint64_t block_id; /* of a block */
    CUdeviceptr_v2 addr;
    struct ms_share_name name;
    uint64_t offset_bytes, whole_bytes;
    size_t chunk_count;
    struct ms_export_chunk *chunks;
    size_t part_count; /* of pages; 0: it is a block */
    struct ms_export_part *parts;
    void (*let)(void *page);
    size_t unmapped, let_go; /* numbers of parts in these states */
    uint64_t holds;          /* by other processes */
    bool listed;             /* its name is in the table */
    bool freed;              /* by the program: the block, or all pages */
};

/* Takes a hold on the memory of that name; null if there is none, or the program has freed it. */
struct ms_export *ms_exports_hold(const struct ms_share_key *block);
void ms_exports_let(struct ms_export *export);

/* Bit i: the program has unmapped the page of chunk first + i. The chunks of the others, `count` at
 * most 64, stay as long as the caller has its hold. */
uint64_t ms_exports_gaps(const struct ms_export *export, size_t first, size_t count);

/* A copy of the descriptor of that number, which the thread's caller owns; -1: none is lent. */
int ms_lent_copy(uint64_t number);

/* Starts the thread; *process gets the name under which this process listens. False: it cannot. */
bool ms_listener_start(struct ms_share_key *process);

#endif
