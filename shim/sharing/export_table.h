/* SPDX-License-Identifier: Apache-2.0 */
/* What the table of exports shares with the thread that answers other processes about them. */
#ifndef MEMSHIM_SHIM_SHARING_EXPORT_TABLE_H
#define MEMSHIM_SHIM_SHARING_EXPORT_TABLE_H

#include "shim/sharing/exports.h"
#include "shim/sharing/wire.h"

struct ms_export_chunk {
    CUmemGenericAllocationHandle_v1 handle;
    uint64_t bytes;
};

struct ms_export_chunks {
    struct ms_export_chunk *list;
    size_t count;
    uint64_t bytes;
};

/* A page that has a name. It is listed once, however many names cover it, until it is unmapped and
 * no name that covers it is open. */
struct ms_export_part {
    struct ms_export_part *next; /* by address; of one address the older one first */
    struct ms_export_page page;
    struct ms_export_chunks chunks;
    void (*let)(void *page);
    uint64_t born, died; /* serial numbers: when it got its first name, and when the program
                            unmapped it; UINT64_MAX: it is mapped */
    uint64_t holds;      /* open names that cover it */
};

/* Lock SHARING guards what changes: next, holds, listed, freed and mapped. */
struct ms_export {
    struct ms_export *next;
    struct ms_device *device;
    uint64_t block_id; /* of a block */
    CUdeviceptr_v2 addr;
    struct ms_share_name name;
    uint64_t offset_bytes, whole_bytes;
    struct ms_export_chunks chunks; /* of a block */
    uint64_t made;                  /* of pages: serial number; it covers what was mapped in its
                                       range then. 0: it is a block */
    size_t pages, mapped;           /* how many it covers, and how many of them are mapped still */
    uint64_t holds;                 /* by other processes */
    bool listed;                    /* its name is in the table */
    bool freed;                     /* by the program: the block, or all pages */
};

/* Takes a hold on the memory of that name; null if there is none, or the program has freed it. */
struct ms_export *ms_exports_hold(const struct ms_share_key *block);
void ms_exports_let(struct ms_export *export);

/* A chunk, and where it is in the memory of the name. */
struct ms_export_piece {
    CUmemGenericAllocationHandle_v1 handle;
    uint64_t at_bytes, bytes;
};

/* The chunks that begin at from_bytes or after it, MS_SHARE_BATCH at most, without those of pages
 * that the program has unmapped. Returns how many; *next_bytes: where to go on. They stay as long
 * as the caller has its hold. */
size_t ms_exports_pieces(const struct ms_export *export, uint64_t from_bytes,
                         struct ms_export_piece *out, uint64_t *next_bytes);

/* A copy of the descriptor of that number, which the thread's caller owns; -1: none is lent. */
int ms_lent_copy(uint64_t number);

/* Starts the thread; *process gets the name under which this process listens. False: it cannot. */
bool ms_listener_start(struct ms_share_key *process);

#endif
