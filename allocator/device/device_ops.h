/* SPDX-License-Identifier: Apache-2.0 */
/* The table of device operations that the pool is handed: all it ever knows of a device.
 *
 * Two tables exist: the real driver's (shim/driver_ops.c) and the dry device's
 * (allocator/device/dry.h). Every operation may be called from any thread and may block, unless its
 * comment says that it does not; the pool calls none of those that may block while it holds its
 * state lock. Operations keep nothing on failure: a call that does not return MS_OK has changed
 * nothing. */
#ifndef MEMSHIM_ALLOCATOR_DEVICE_DEVICE_OPS_H
#define MEMSHIM_ALLOCATOR_DEVICE_DEVICE_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/address.h"
#include "allocator/base/status.h"

/* A point in the order of the device's work, taken by `fence_take` and released by `fence_release`.
 */
typedef uint64_t ms_fence_t;

struct ms_device_ops {
    void *ctx; /* handed to every operation; owned by whoever made the table */

    uint64_t granule_bytes; /* smallest chunk and the unit of every mapping; a power of two. 0 where
                               the device has no virtual memory management: then only plain_alloc
                               and plain_free, and the fences, may be called */
    uint64_t total_bytes;   /* what the device has in all */

    /* Addresses without backing. bytes and alignment are multiples of the granule. Address space
     * that runs out is MS_ERR_NO_MEMORY. */
    ms_status_t (*address_reserve)(void *ctx, uint64_t bytes, uint64_t alignment, ms_addr_t *out);
    ms_status_t (*address_free)(void *ctx, ms_addr_t addr, uint64_t bytes);

    /* One chunk of `bytes` (a multiple of the granule). It cannot be split. A chunk that is
     * released while mapped lives until its last mapping is gone. properties: what the maker of
     * this table gave ms_proxy_create for it; null: the device's own. MS_LOCATION_HOST is
     * MS_ERR_NOT_SUPPORTED where the device cannot reach such memory. */
    ms_status_t (*chunk_create)(void *ctx, uint64_t bytes, enum ms_location location,
                                const void *properties, ms_handle_t *out);
    ms_status_t (*chunk_release)(void *ctx, ms_handle_t chunk);

    /* What the device has free, whoever holds the rest; asked only once chunk_create has found no
     * room, and not exact: some of it may be nobody's to have. MS_ERR_NOT_READY: not now (something
     * captures). Does not wait for queued work. Null: nobody knows. */
    ms_status_t (*free_bytes)(void *ctx, uint64_t *out);

    /* map takes a whole chunk; the range is not accessible before set_access, which gives access to
     * the device and to every peer that has been enabled, and wants every byte of it mapped.
     * unmap takes exactly what map mapped, one chunk or several neighbours. The caller has seen on
     * the host that no queued work can touch the range any more. */
    ms_status_t (*map)(void *ctx, ms_addr_t addr, uint64_t bytes, ms_handle_t chunk);
    ms_status_t (*set_access)(void *ctx, ms_addr_t addr, uint64_t bytes);
    ms_status_t (*unmap)(void *ctx, ms_addr_t addr, uint64_t bytes);

    /* Fences. `fence_take` notes all work queued on `stream` up to now (MS_STREAM_DEVICE: on every
     * stream and context of the process, also of other devices, which reach this one's memory with
     * copies; and of streams that were destroyed with work queued). It is MS_ERR_NOT_SUPPORTED
     * while anything captures, where no fence can be taken without harm: the caller then treats the
     * work as unfinished. A stream that was destroyed is treated as MS_STREAM_DEVICE is.
     * fence_query: MS_OK once all of it is done on the device and the host has seen that;
     * MS_ERR_NOT_READY before; does not block. fence_wait blocks the calling thread for at most
     * timeout_ns and answers as fence_query does. stream_wait queues, on `stream`, a wait for the
     * fence; like every call that queues work it may block while the queue is full. fence_release
     * may be called at any time, once. */
    ms_status_t (*fence_take)(void *ctx, ms_stream_t stream, ms_fence_t *out);
    ms_status_t (*fence_query)(void *ctx, ms_fence_t fence);
    ms_status_t (*fence_wait)(void *ctx, ms_fence_t fence, uint64_t timeout_ns);
    ms_status_t (*stream_wait)(void *ctx, ms_stream_t stream, ms_fence_t fence);
    void (*fence_release)(void *ctx, ms_fence_t fence);

    /* Whether a stream of the process captures at this moment; does not block. */
    bool (*capturing)(void *ctx);

    /* What is spilled is about to be chosen: tells the pool (ms_pool_touch) of the uses that it has
     * not heard of yet. False: there are uses that it never hears of. The caller holds no lock but
     * the growth lock. Null: it has heard of all. */
    bool (*report_uses)(void *ctx);

    /* Standstill, for moving contents. halt returns MS_OK once nothing runs on the device or on any
     * other of the process, and nothing that the process asks for can start, until resume: calls
     * that queue work wait at the gate meanwhile. MS_ERR_NOT_READY, and the gate open again: that
     * was not reached within timeout_ns (work that waits for a held thread, or just long work).
     * MS_ERR_NOT_SUPPORTED: not while something captures, not where a call was seen that the gate
     * does not know, never from inside a call that itself holds the device. Not nested; the caller
     * holds no lock but the pool's growth lock. Whoever waits at the gate, or is counted as being
     * in a call that passed it, holds no lock of a pool and calls none: a thread that allocates may
     * wait for the growth lock, and so for the resume. Null where the table cannot. */
    ms_status_t (*halt)(void *ctx, uint64_t timeout_ns);
    void (*resume)(void *ctx);

    /* Between halt and resume: queues a copy between two ranges that are mapped and accessible. It
     * ends after those before it, and goes on while other memory is mapped and unmapped; where
     * set_access waits for copies, it waits for no more than a small part of one. copy_wait
     * returns when all but the last `left` of them are done, with the first failure of those that
     * no earlier wait has waited for. */
    ms_status_t (*copy)(void *ctx, ms_addr_t to, ms_addr_t from, uint64_t bytes);
    ms_status_t (*copy_wait)(void *ctx, uint64_t left);

    /* The time that standstills are measured in. Null: the host's monotonic clock. */
    uint64_t (*now_ns)(void *ctx);

    /* Memory with the device's own allocator, for a device without virtual memory management.
     * plain_free may wait for the device. */
    ms_status_t (*plain_alloc)(void *ctx, uint64_t bytes, ms_addr_t *out);
    ms_status_t (*plain_free)(void *ctx, ms_addr_t addr);
};

#endif
