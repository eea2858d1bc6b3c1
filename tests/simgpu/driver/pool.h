/* SPDX-License-Identifier: Apache-2.0 */
/* Memory pools, and memory allocated and freed in stream order. A pool reserves superblocks of its
 * device's arena and hands out parts of them. A freed part may be reused at once by its own stream,
 * and by others as the pool's reuse attributes allow. At a synchronization, whole superblocks above
 * the release threshold go back to the device. All under sim_lock.
 *
 * The pool of a device's graphs hands out addresses alone. Memory comes to them with an upload or a
 * launch: any of the pool's memory to any of its addresses, since a graph's addresses are mapped
 * ("virtual aliasing: different graphs can map the same physical memory to their unique virtual
 * addresses", CUDA programming guide, graph memory nodes). */
#ifndef SIMGPU_POOL_H
#define SIMGPU_POOL_H

#include "driver_api.h"
#include "extent.h"
#include "memory.h"
#include "object.h"

#include <stdbool.h>

struct sim_device;
struct sim_pending_free;

struct CUmemPoolHandle_st {
    struct sim_object object;
    struct CUmemPoolHandle_st *next; /* of all pools */
    struct sim_device *device;       /* NULL: a pool of host memory */
    CUmemPoolProps properties;
    bool destroyed, is_default, is_graph;
    int exporter;            /* process id of the process whose pool it stands for; 0: its own */
    struct sim_extents free; /* by address; complete frees only */
    struct sim_tree superblocks;                     /* key: address */
    struct sim_pending_free *pending, *last_pending; /* freed, but their stream has not reached the
                                                        free */
    uint64_t reserved, reserved_high, used, used_high; /* of memory, not of addresses alone */
    uint64_t release_threshold;
    int reuse_follow_event, reuse_opportunistic, reuse_internal;
    uint32_t access_devices; /* bit i: device i may access it, besides its own device */
    uint64_t live_ranges;
};

/* The device's default pool; NULL: out of host memory. */
CUmemoryPool sim_pool_default(struct sim_device *device);
/* The pool from which graphs of the device allocate. */
CUmemoryPool sim_pool_graph(struct sim_device *device);

/* Gets the pool of a device's graphs as much memory as `bytes` of its addresses need that have
 * none. CUDA_ERROR_OUT_OF_MEMORY, and nothing is taken. */
CUresult sim_pool_provide(CUmemoryPool pool, uint64_t bytes);
/* Gives an address of a graph its memory, which was provided. */
void sim_pool_back(struct sim_range *range);
/* Its memory is the pool's again; the next upload or launch gives it some. */
void sim_pool_unback(struct sim_range *range);

/* Allocates memory for a stream; adds the waits to the stream that its order needs. stream NULL:
 * for a graph. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult sim_pool_alloc(CUmemoryPool pool, uint64_t bytes, CUstream stream,
                        struct sim_range **result);

/* The memory is free again once `stream` gets there. Not for capturing streams. */
CUresult sim_pool_free_in_order(struct sim_range *range, CUstream stream);

/* Whether the handle is a pool that the application may name. */
bool sim_pool_is(CUmemoryPool pool);

/* A new pool of a device, or of the host (NULL); NULL: out of host memory. */
CUmemoryPool sim_pool_new(struct sim_device *device);
/* Frees a destroyed pool once its last memory is gone. */
void sim_pool_release_destroyed(CUmemoryPool pool);
/* Makes the frees that streams have reached by now available. */
void sim_pool_collect(CUmemoryPool pool);
/* Gives completely unused superblocks back while more than `keep` bytes are reserved; returns
 * whether it gave any. */
bool sim_pool_trim(CUmemoryPool pool, uint64_t keep);

/* The range's memory is free for all streams: its last use is complete. */
void sim_pool_free_now(struct sim_range *range);

/* The superblock of its pool in which the range lies. */
void sim_pool_superblock(const struct sim_range *range, CUdeviceptr *start, uint64_t *bytes);

/* Applies a synchronization of the device to its pools. */
void sim_pools_at_synchronize(struct sim_device *device);
/* Gives back all that the device's pools hold unused; false: nothing. */
bool sim_pools_give_back(struct sim_device *device);
/* A context of the pools' device ends. */
void sim_pools_forget_context(CUcontext context);

#endif
