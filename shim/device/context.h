/* SPDX-License-Identifier: Apache-2.0 */
/* The contexts of the process, and what the driver took by itself for each.
 *
 * A record is made when a context is created, or first seen current. Records are read without a
 * lock, so they are never freed. Once its context is gone and nobody holds the record, it is used
 * again for another context of its device. */
#ifndef MEMSHIM_SHIM_DEVICE_CONTEXT_H
#define MEMSHIM_SHIM_DEVICE_CONTEXT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/locks/debt.h"
#include "allocator/pool.h"
#include "shim/driver/hook.h"

struct ms_device;

/* What a block belongs to. A context's blocks die with the context. Blocks of a memory pool, which
 * are allocated in stream order, do not. */
enum ms_holder_kind { MS_HOLDER_CONTEXT, MS_HOLDER_MEMPOOL };

struct ms_context {
    struct ms_holder holder;  /* of its blocks; first, so that a pointer to one is a pointer to the
                                 other */
    struct ms_device *device; /* this one and the next two never change */
    struct ms_context *next;  /* the list of all records, newest first */
    bool primary;
    _Atomic(CUcontext) handle;
    _Atomic ms_stream_t heir; /* waits for the work that destroyed streams left (heirs.h); 0:
                                 none */
    _Atomic ms_stream_t legacy_stream; /* unique, also when the record is used again */
    _Atomic bool dead;                 /* destroyed or reset: no work of it runs any more */
    _Atomic uint32_t holds;
    _Atomic uint32_t users;         /* calls under way that use its handle, or anything in it */
    _Atomic uint32_t closers;       /* calls under way that may destroy it */
    _Atomic bool launched;          /* its first launch has been measured */
    _Atomic uint64_t charged_bytes; /* charged to MS_OWNER_CONTEXT; given back when it dies */
    _Atomic uint64_t peers;         /* bit d: may access the memory of device d */
};

/* A held record stays this context's, dead or alive. Hold one to keep it beyond a call, or to walk
 * over contexts that other threads may destroy. The caller knows that the context lives, or holds
 * it already. */
static inline void ms_context_hold(struct ms_context *context)
{
    atomic_fetch_add(&context->holds, 1);
}

static inline void ms_context_let(struct ms_context *context)
{
    atomic_fetch_sub(&context->holds, 1);
}

/* False, and nothing held: the record has no live context. */
static inline bool ms_context_hold_live(struct ms_context *context)
{
    ms_context_hold(context);
    if (context->dead) {
        ms_context_let(context);
        return false;
    }
    return true;
}

/* Begins a use: the context lives until ms_context_leave, because calls that destroy it wait. A use
 * lasts for one driver call or for the copies of a standstill; a thread in a use waits for nothing
 * that the program does, and cannot be cancelled in a driver call (cancel.h). False, and nothing to
 * leave: the context is dead, or a call that may destroy it has begun (`dead` then says how that
 * call ended). */
static inline void ms_context_leave(struct ms_context *context)
{
    ms_debt_note(-1);
    atomic_fetch_sub(&context->users, 1);
}

static inline bool ms_context_use(struct ms_context *context)
{
    /* The user counts itself first and then looks whether a close is under way; the closer does the
     * reverse. So at least one of the two sees the other. */
    ms_debt_note(1);
    atomic_fetch_add(&context->users, 1);
    if (context->dead || atomic_load(&context->closers) != 0) {
        ms_context_leave(context);
        return false;
    }
    return true;
}

/* Called before and after a call that may destroy the context: between them no use can begin. Close
 * waits for the users, at most a minute: a driver call that takes longer may be waiting for the
 * caller. */
void ms_context_close(struct ms_context *context);
void ms_context_reopen(struct ms_context *context);

/* The current context of the calling thread; *out is null if there is none, or if memshim leaves
 * its device alone. Makes the record, and that of the device, at first sight. An error is that of
 * the query that failed. It is not kept, and the call that needed the context returns it. */
CUresult ms_context_query(struct ms_context **out);

/* The same, and the default stream that the null stream stands for there. */
CUresult ms_context_query_stream(struct ms_context **out, ms_stream_t *legacy);

/* The same for callers that only take note: null also if a query failed. */
struct ms_context *ms_context_current(void);

/* The record of a context that need not be current, or the driver's error about its handle;
 * otherwise as ms_context_query. */
CUresult ms_context_of(CUcontext handle, struct ms_context **out);

/* The record of a context that was just created. overhead_bytes: what the driver took for it. */
struct ms_context *ms_context_created(CUcontext handle, uint64_t overhead_bytes);

/* A live context of the device, preferably its primary one; null if there is none. `used`: begins a
 * use, which the caller leaves, of one that is not about to be destroyed. `awaited`: the same, but
 * if all are about to be destroyed, waits up to a second to see whether one lives on. */
struct ms_context *ms_context_any(const struct ms_device *device);
struct ms_context *ms_context_any_used(const struct ms_device *device);
struct ms_context *ms_context_any_awaited(const struct ms_device *device);

/* The newest record; follow `next` for the others. */
struct ms_context *ms_context_first(void);

/* The record of a live context; null: memshim does not know it. */
struct ms_context *ms_context_find(CUcontext handle);

/* The number of live contexts without a launch so far. While it is 0, a launch checks no
 * context. */
extern _Atomic int ms_contexts_unlaunched;

/* Makes the device's primary context current for a thread that has none, as the runtime does in its
 * allocations. Nothing happens where that context does not exist. */
void ms_context_make_current(const struct ms_device *device);

/* A scope makes a context of the device current for the calling thread, unless one is. It also
 * permits calls that a capture in global mode would refuse (cuda.h,
 * cuThreadExchangeStreamCaptureMode). A device without any context gets none, because the calls on
 * virtual memory need none. A context that the scope made current is in use until ms_scope_leave,
 * which restores everything. Until then the thread cannot be cancelled (cancel.h).
 * ms_scope_enter_context returns false, and nothing is to be left, if the context cannot be used.
 */
struct ms_scope {
    struct ms_context *used; /* null: none */
    bool pushed;
    bool exchanged;
    CUstreamCaptureMode mode;
    int cancellation;
};
void ms_scope_enter(const struct ms_device *device, struct ms_scope *scope);
bool ms_scope_enter_context(struct ms_context *context, struct ms_scope *scope);
void ms_scope_leave(struct ms_scope *scope);

#endif
