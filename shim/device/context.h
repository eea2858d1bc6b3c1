/* SPDX-License-Identifier: Apache-2.0 */
/* The contexts of the process and what the driver took by itself for each.
 *
 * A record is made when a context is created, or first seen current. It is never freed, for it is
 * read without a lock: once its context is gone and nobody holds it any more, it serves for another
 * context of its device. */
#ifndef MEMSHIM_SHIM_DEVICE_CONTEXT_H
#define MEMSHIM_SHIM_DEVICE_CONTEXT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/pool.h"
#include "shim/driver/hook.h"

struct ms_device;

/* To what a block belongs. A context's blocks die with the context; blocks of a memory pool, which
 * are allocated in stream order, do not. */
enum ms_holder_kind { MS_HOLDER_CONTEXT, MS_HOLDER_MEMPOOL };

struct ms_context {
    struct ms_holder holder;  /* of its blocks; first, so that one is the other */
    struct ms_device *device; /* this one and the next two never change */
    struct ms_context *next;  /* all records, the newest first */
    bool primary;
    _Atomic(CUcontext) handle;
    _Atomic ms_stream_t heir; /* waits for what destroyed streams left (heirs.h); 0: none */
    _Atomic ms_stream_t legacy_stream; /* of no other context, also where the record serves again */
    _Atomic bool dead;                 /* destroyed or reset: nothing of it runs any more */
    _Atomic uint32_t holds;
    _Atomic uint32_t users;         /* calls under way that use its handle, or anything in it */
    _Atomic uint32_t closers;       /* calls under way that may destroy it */
    _Atomic bool launched;          /* its first launch has been measured */
    _Atomic uint64_t charged_bytes; /* to MS_OWNER_CONTEXT; given back when it dies */
    _Atomic uint64_t peers;         /* bit d: may access the memory of device d */
};

/* Held, a record stays this context's, dead or alive: for who keeps it beyond a call, and for who
 * walks over contexts that are other threads' business. The caller knows that the context lives, or
 * holds it. */
static inline void ms_context_hold(struct ms_context *context)
{
    atomic_fetch_add(&context->holds, 1);
}

static inline void ms_context_let(struct ms_context *context)
{
    atomic_fetch_sub(&context->holds, 1);
}

/* False, and not held: there is no live context in the record. */
static inline bool ms_context_hold_live(struct ms_context *context)
{
    ms_context_hold(context);
    if (context->dead) {
        ms_context_let(context);
        return false;
    }
    return true;
}

/* A use: the context lives until it is left, for calls that destroy it wait. It lasts for a call of
 * the driver's or for the copies of a standstill, and a thread that is in a use waits for nothing
 * that the program does. False, and nothing to leave: the context is dead, or a call that may
 * destroy it has begun (then `dead` says how that ended). */
bool ms_context_use(struct ms_context *context);
void ms_context_leave(struct ms_context *context);

/* Before and after a call that may destroy the context: nobody uses it meanwhile. Close waits for
 * those who do, at most a minute: a driver's call that takes longer may wait for the caller. */
void ms_context_close(struct ms_context *context);
void ms_context_reopen(struct ms_context *context);

/* The current context of the calling thread; *out is null where there is none, or where its device
 * is one that memshim leaves alone. Makes its record, and its device's, where this is the first
 * that is seen of it. An error is that of the query that failed: nothing is remembered of it, and
 * the call that needed to know returns it. */
CUresult ms_context_query(struct ms_context **out);

/* The same, and the default stream that the null stream means there. */
CUresult ms_context_query_stream(struct ms_context **out, ms_stream_t *legacy);

/* The same for who only takes note: null also where a query failed. */
struct ms_context *ms_context_current(void);

/* The record of a context that need not be current, or the driver's error about its handle; like
 * ms_context_query in the rest. */
CUresult ms_context_of(CUcontext handle, struct ms_context **out);

/* The record of a context that was just created, for which the driver took so many bytes. */
struct ms_context *ms_context_created(CUcontext handle, uint64_t overhead_bytes);

/* The context was destroyed or reset, its work is over: gives back what is charged for it, frees
 * the memory that died with it. everything: also what outlives single contexts (a device reset). */
void ms_context_gone(struct ms_context *context, bool everything);

/* Some live context of the device, its primary one first; null where there is none. Used: one that
 * is not about to be destroyed, and that is the caller's to leave. Awaited: likewise, but where all
 * are about to be destroyed, it is waited for a second whether one lives on. */
struct ms_context *ms_context_any(const struct ms_device *device);
struct ms_context *ms_context_any_used(const struct ms_device *device);
struct ms_context *ms_context_any_awaited(const struct ms_device *device);

/* The newest record; walk by `next`. */
struct ms_context *ms_context_first(void);

/* Live contexts that have not launched anything yet: while it is 0 a launch needs no look. */
extern _Atomic int ms_contexts_unlaunched;

/* Makes a context of the device current to the calling thread, where none or another device's is,
 * and lets calls through that a capture in global mode would refuse (cuda.h,
 * cuThreadExchangeStreamCaptureMode). A device without any context is left without: the calls on
 * virtual memory need none. A context that is made current is in use until leave, which puts all
 * back. ms_scope_enter_context is false, and nothing is to be left, where it cannot be used. */
struct ms_scope {
    struct ms_context *used; /* null: none */
    bool pushed;
    bool exchanged;
    CUstreamCaptureMode mode;
};
void ms_scope_enter(const struct ms_device *device, struct ms_scope *scope);
bool ms_scope_enter_context(struct ms_context *context, struct ms_scope *scope);
void ms_scope_leave(struct ms_scope *scope);

#endif
