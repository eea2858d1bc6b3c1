/* SPDX-License-Identifier: Apache-2.0 */
/* The table of device operations, through which alone the pool reaches a device.
 *
 * Two tables exist: the real driver's (shim/device/operations/driver_ops.c) and the dry device's
 * (allocator/device/dry.h). Every operation may be called from any thread and may block, unless its
 * comment says that it does not; the pool calls none of those that may block while it holds its
 * state lock. Operations keep nothing on failure: a call that does not return MS_OK has changed
 * nothing. */
#ifndef MEMSHIM_ALLOCATOR_DEVICE_DEVICE_OPS_H
#define MEMSHIM_ALLOCATOR_DEVICE_DEVICE_OPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/address.h"
#include "allocator/base/status.h"

/* A point in the order of the device's work: fence_take makes it, fence_release ends it. */
typedef uint64_t ms_fence_t;

/* A standstill is tried at least this long, however short the wait for queued work may be: once,
 * with the gate open and then closed (`halt`). */
#define MS_HALT_LEAST_NS 260000000u

struct ms_device_ops {
    void *ctx; /* passed to every operation; the table's maker owns it */

    uint64_t granule_bytes; /* the smallest chunk, and the unit of every mapping; a power of two. 0:
                               the device has no virtual memory management, and only plain_alloc,
                               plain_free and the fences may be called */
    uint64_t total_bytes;   /* all of the device's memory */

    /* Addresses without backing. bytes and alignment are multiples of the granule.
     * MS_ERR_NO_MEMORY: the address space is used up. */
    ms_status_t (*address_reserve)(void *ctx, uint64_t bytes, uint64_t alignment, ms_addr_t *out);
    ms_status_t (*address_free)(void *ctx, ms_addr_t addr, uint64_t bytes);

    /* One chunk of `bytes` (a multiple of the granule). It cannot be split. A chunk that is
     * released while mapped lives until its last mapping ends. properties: as passed to
     * ms_proxy_create by this table's maker; null: the device's own. MS_ERR_NOT_SUPPORTED:
     * MS_LOCATION_HOST, and the device cannot reach such memory. */
    ms_status_t (*chunk_create)(void *ctx, uint64_t bytes, enum ms_location location,
                                const void *properties, ms_handle_t *out);
    ms_status_t (*chunk_release)(void *ctx, ms_handle_t chunk);

    /* The device's free bytes, whoever holds the rest. Called only after chunk_create has found no
     * room. Not exact: some of them may be unusable. MS_ERR_NOT_READY: not now (something
     * captures). Does not wait for queued work. Null: unknown. */
    ms_status_t (*free_bytes)(void *ctx, uint64_t *out);

    /* map takes a whole chunk. The range is not accessible before set_access, which gives access to
     * the device and to every enabled peer; every byte must be mapped. unmap takes exactly what map
     * mapped, one chunk or several neighbours. The caller has seen on the host that no queued work
     * can touch the range any more. */
    ms_status_t (*map)(void *ctx, ms_addr_t addr, uint64_t bytes, ms_handle_t chunk);
    ms_status_t (*set_access)(void *ctx, ms_addr_t addr, uint64_t bytes);
    ms_status_t (*unmap)(void *ctx, ms_addr_t addr, uint64_t bytes);

    /* Fences. `fence_take` notes all work queued on `stream` up to now (MS_STREAM_DEVICE: on every
     * stream and context of the process, also of other devices, which reach this one's memory with
     * copies; and of streams that were destroyed with work queued). MS_ERR_NOT_SUPPORTED: something
     * captures, and a fence would do harm; the caller then treats the work as unfinished. A
     * destroyed stream counts as MS_STREAM_DEVICE. fence_query: MS_OK once all of it is done on the
     * device and the host has seen that; MS_ERR_NOT_READY before; does not block. fence_wait blocks
     * the calling thread for at most timeout_ns and answers as fence_query does. stream_wait
     * queues, on `stream`, a wait for the fence; like every call that queues work it may block
     * while the queue is full. fence_release may be called at any time, once. */
    ms_status_t (*fence_take)(void *ctx, ms_stream_t stream, ms_fence_t *out);
    ms_status_t (*fence_query)(void *ctx, ms_fence_t fence);
    ms_status_t (*fence_wait)(void *ctx, ms_fence_t fence, uint64_t timeout_ns);
    ms_status_t (*stream_wait)(void *ctx, ms_stream_t stream, ms_fence_t fence);
    void (*fence_release)(void *ctx, ms_fence_t fence);

    /* How many streams of the process capture at this moment: ms_device_captures. A variable, for
     * every report of a tensor asks. */
    const _Atomic int *captures;

    /* Called before the pool chooses what to spill: tells the pool of uses that it has not seen yet
     * (ms_pool_touch). False: there are uses that it never sees. The caller holds no lock but the
     * growth lock. Null: it has seen all. */
    bool (*report_uses)(void *ctx);

    /* Standstill, for moving contents. halt returns MS_OK once nothing runs on the device or on any
     * other of the process, and nothing that the process asks for can start, until resume: calls
     * that queue work wait at the gate meanwhile. MS_ERR_NOT_READY: not reached within timeout_ns
     * (work that waits for a held thread, or just long work); the gate is open again.
     * MS_ERR_NOT_SUPPORTED: something captures, or a call was seen that the gate does not know, or
     * the caller is inside a call that itself holds the device. Not nested; the caller holds no
     * lock but the pool's growth lock. A thread that waits at the gate, or is counted as inside a
     * call that passed it, holds no lock of a pool and calls none: a thread that allocates may wait
     * for the growth lock, and so for the resume. Null: not supported. */
    ms_status_t (*halt)(void *ctx, uint64_t timeout_ns);
    void (*resume)(void *ctx);

    /* Between halt and resume: queues a copy between two ranges that are mapped and accessible.
     * Copies end in order, and go on while other memory is mapped and unmapped. If set_access waits
     * for copies, it waits for no more than a small part of one. copy_wait returns when all but the
     * last `left` copies are done, with the first failure of those that no earlier wait covered. */
    ms_status_t (*copy)(void *ctx, ms_addr_t to, ms_addr_t from, uint64_t bytes);
    ms_status_t (*copy_wait)(void *ctx, uint64_t left);

    /* The clock that standstills are measured by. Null: the host's monotonic clock. */
    uint64_t (*now_ns)(void *ctx);

    /* Memory with the device's own allocator, for a device without virtual memory management.
     * plain_free may wait for the device. */
    ms_status_t (*plain_alloc)(void *ctx, uint64_t bytes, ms_addr_t *out);
    ms_status_t (*plain_free)(void *ctx, ms_addr_t addr);
};

static inline bool ms_device_captures(const struct ms_device_ops *ops)
{
    return atomic_load(ops->captures) != 0;
}

#endif
