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

/* Lock SHARING guards what changes: next, holds, listed, freed. */
struct ms_export {
    struct ms_export *next;
    struct ms_device *device;
    uint64_t block_id;
    CUdeviceptr_v2 addr;
    struct ms_share_name name;
    uint64_t offset_bytes, whole_bytes;
    size_t chunk_count;
    struct ms_export_chunk *chunks;
    uint64_t holds; /* by other processes */
    bool listed;    /* its name is in the table */
    bool freed;     /* by the program */
};

/* Takes a hold on the block of that name; null if there is none, or the program has freed it. */
struct ms_export *ms_exports_hold(const struct ms_share_key *block);
void ms_exports_let(struct ms_export *export);

/* Starts the thread; *process gets the name under which this process listens. False: it cannot. */
bool ms_listener_start(struct ms_share_key *process);

#endif
