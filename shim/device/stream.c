/* SPDX-License-Identifier: Apache-2.0 */
/* Stream ids, and the default streams of both flavours. */
#include "shim/device/stream.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "allocator/base/cancel.h"
#include "allocator/base/containers/chains.h"
#include "allocator/base/locks/lock.h"
#include "shim/device/capture.h"
#include "shim/device/device.h"
#include "shim/device/heirs.h"
#include "shim/driver/driver.h"
#include "shim/process/process.h"

#define THREAD_STREAM_HITS 4u
/* how often to check whether a destroyed stream's users have left */
#define DESTROY_NAPS   2000u
#define DESTROY_NAP_NS 50000u

enum stream_kind { CREATED, LEGACY, PER_THREAD };

struct stream {
    ms_stream_t id;
    CUstream handle;
    struct ms_context *context;
    CUcontext owner; /* of a CREATED one: the driver's handle of its context */
    struct ms_link by_handle, by_id;
    uint64_t thread;    /* of a per-thread default stream, otherwise 0 */
    ms_stream_t legacy; /* likewise: the legacy one beside it, which a green context has, too */
    enum stream_kind kind;
    bool capturing;
    bool unlinked;  /* out of the tables; the last user frees it */
    uint32_t users; /* between ms_stream_enter and ms_stream_leave */
    /* The program destroyed the stream without waiting for its users: the last user calls this
     * function of the driver. */
    CUresult (*destroy)(CUstream);
};

/* CREATED ones alone: the others share two handles. */
static struct ms_chains by_handle = {.offset = offsetof(struct stream, by_handle)};
static struct ms_chains by_id = {.offset = offsetof(struct stream, by_id)};
static _Atomic ms_stream_t last_id;
static _Atomic uint64_t last_thread;
static _Atomic uint64_t epoch; /* advances when a stream goes: it invalidates what threads
                                  remember */
/* What a thread remembers, so that using the same stream again takes no lock. */
struct stream_memory {
    uint64_t epoch;
    CUstream handle;
    struct ms_stream_view view;
    struct {
        ms_stream_t legacy; /* identifies the context */
        ms_stream_t id;
    } own[THREAD_STREAM_HITS];
    unsigned own_next;
    uint64_t thread;
};
static _Thread_local struct stream_memory memory __attribute__((tls_model("initial-exec")));

static pthread_once_t thread_end_once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_end_key;
static bool thread_ends_seen;

ms_stream_t ms_stream_new_id(void)
{
    return atomic_fetch_add(&last_id, 1) + 1;
}

static struct stream *find_by_handle(CUstream handle)
{
    return ms_chains_find(&by_handle, (uintptr_t)handle);
}

static struct stream *find_by_id(ms_stream_t id)
{
    return ms_chains_find(&by_id, id);
}

static void link_locked(struct stream *s)
{
    ms_chains_enter(&by_id, s, s->id);
    if (s->kind == CREATED) {
        ms_chains_enter(&by_handle, s, (uintptr_t)s->handle);
    }
}

/* Removes the stream from the tables, and invalidates what threads remember. */
static void unlink_locked(struct stream *s)
{
    ms_chains_remove(&by_id, s);
    if (s->kind == CREATED) {
        ms_chains_remove(&by_handle, s);
    }
    atomic_fetch_add(&epoch, 1);
}

/* Frees or leaves an unlinked record. The caller holds the lock. */
static void forget_locked(struct stream *s)
{
    if (s->capturing) {
        ms_capture_forget();
    }
    s->unlinked = true;
    if (s->users == 0) {
        free(s);
    }
}

static struct stream *new_stream(enum stream_kind kind, CUstream handle, struct ms_context *context)
{
    struct stream *s = calloc(1, sizeof *s);
    if (s) {
        s->id = ms_stream_new_id();
        s->handle = handle;
        s->context = context;
        s->kind = kind;
    }
    return s;
}

void ms_stream_add_legacy(struct ms_context *context)
{
    struct stream *s = new_stream(LEGACY, CU_STREAM_LEGACY, context);
    if (!s) {
        context->legacy_stream = ms_stream_new_id(); /* in no table: its fence is that of the
                                                        device */
        return;
    }
    context->legacy_stream = s->id;
    ms_lock_acquire(MS_LOCK(STREAMS));
    link_locked(s);
    ms_lock_release(MS_LOCK(STREAMS));
}

/* Makes a record for an unknown handle: created by a call without a hook, or just now. */
static CUresult adopt(CUstream handle, struct ms_stream_view *out)
{
    CUcontext owner = NULL;
    CUresult result = ms_driver()->cuStreamGetCtx(handle, &owner);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct ms_context *context = NULL;
    result = ms_context_of(owner, &context);
    if (!context) {
        return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_CONTEXT : result;
    }
    struct stream *fresh = new_stream(CREATED, handle, context);
    if (!fresh) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fresh->owner = owner;
    ms_lock_acquire(MS_LOCK(STREAMS));
    struct stream *s = find_by_handle(handle);
    if (s && s->context->dead) {
        unlink_locked(s);
        forget_locked(s);
        s = NULL;
    }
    if (!s) {
        link_locked(fresh);
        s = fresh;
        fresh = NULL;
    }
    *out = (struct ms_stream_view){s->id, s->context};
    ms_lock_release(MS_LOCK(STREAMS));
    free(fresh);
    return CUDA_SUCCESS;
}

/* --- the per-thread default streams --------------------------------------------------------- */

static void thread_ended(void *value)
{
    uint64_t thread = (uint64_t)(uintptr_t)value;
    while (!ms_process_inert()) {
        ms_lock_acquire(MS_LOCK(STREAMS));
        struct stream *s = NULL;
        do {
            s = ms_chains_next(&by_id, s);
        } while (s && s->thread != thread);
        ms_stream_t id = s ? s->id : 0;
        struct ms_context *context = s ? s->context : NULL;
        if (s) {
            /* Unlinked here: its handle means nothing on other threads, and soon nothing on this
             * one. From here on the device's fence covers it. */
            unlink_locked(s);
            forget_locked(s);
        }
        ms_lock_release(MS_LOCK(STREAMS));
        if (!context) {
            return;
        }
        ms_device_stream_gone(context->device, id);
    }
}

static void make_thread_end_key(void)
{
    thread_ends_seen = pthread_key_create(&thread_end_key, thread_ended) == 0;
}

/* *id: the legacy default stream beside it, which becomes the thread's own. */
static CUresult resolve_own(struct ms_context *context, ms_stream_t *id)
{
    const ms_stream_t legacy = *id;
    for (unsigned i = 0; i < THREAD_STREAM_HITS; i++) {
        if (memory.own[i].legacy == legacy && !context->dead) {
            *id = memory.own[i].id;
            return CUDA_SUCCESS;
        }
    }
    if (memory.thread == 0) {
        memory.thread = atomic_fetch_add(&last_thread, 1) + 1;
        pthread_once(&thread_end_once, make_thread_end_key);
        if (thread_ends_seen) { /* otherwise the stream stays known, and the device's fence covers
                                   it */
            pthread_setspecific(thread_end_key, (void *)(uintptr_t)memory.thread);
        }
    }
    ms_lock_acquire(MS_LOCK(STREAMS));
    struct stream *s = NULL;
    do {
        s = ms_chains_next(&by_id, s);
    } while (s && (s->thread != memory.thread || s->legacy != legacy));
    if (!s) {
        s = new_stream(PER_THREAD, CU_STREAM_PER_THREAD, context);
        if (s) {
            s->thread = memory.thread;
            s->legacy = legacy;
            link_locked(s);
        }
    }
    *id = s ? s->id : 0;
    ms_lock_release(MS_LOCK(STREAMS));
    if (*id == 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    unsigned i = memory.own_next++ % THREAD_STREAM_HITS;
    memory.own[i].legacy = legacy;
    memory.own[i].id = *id;
    return CUDA_SUCCESS;
}

/* --- resolving ------------------------------------------------------------------------------- */

static __attribute__((noinline)) CUresult resolve_default(CUstream handle,
                                                          struct ms_stream_view *out)
{
    CUresult result = ms_context_query_stream(&out->context, &out->id);
    if (!out->context) {
        return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_CONTEXT : result;
    }
    return handle == CU_STREAM_PER_THREAD ? resolve_own(out->context, &out->id) : CUDA_SUCCESS;
}

/* Another stream than this thread's last one, which it becomes. */
static __attribute__((noinline)) CUresult resolve_another(CUstream handle,
                                                          struct ms_stream_view *out)
{
    uint64_t now = atomic_load(&epoch);
    ms_lock_acquire(MS_LOCK(STREAMS));
    struct stream *s = find_by_handle(handle);
    bool known = s && !s->context->dead;
    if (known) {
        *out = (struct ms_stream_view){s->id, s->context};
    }
    ms_lock_release(MS_LOCK(STREAMS));
    if (!known) {
        CUresult result = adopt(handle, out);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    memory.handle = handle;
    memory.view = *out;
    memory.epoch = now;
    return CUDA_SUCCESS;
}

/* The usual case calls nothing, so that it saves no register. */
CUresult ms_stream_resolve(CUstream handle, bool per_thread, struct ms_stream_view *out)
{
    handle = ms_stream_plain_handle(handle, per_thread);
    if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        return resolve_default(handle, out);
    }
    if (memory.handle == handle && memory.epoch == atomic_load(&epoch) &&
        !memory.view.context->dead) {
        *out = memory.view;
        return CUDA_SUCCESS;
    }
    return resolve_another(handle, out);
}

/* The last user of a destroyed stream finishes the destruction. */
static void let_record(struct stream *s)
{
    ms_lock_acquire(MS_LOCK(STREAMS));
    bool last = --s->users == 0 && s->unlinked;
    ms_lock_release(MS_LOCK(STREAMS));
    if (last && s->destroy) {
        (void)s->destroy(s->handle);
    }
    if (last) {
        free(s);
    }
}

/* Whether this thread can name the stream in its context. Not one of a green context, in which its
 * handle means another stream. */
static bool has_name(const struct stream *s)
{
    return s->kind != PER_THREAD ||
           (s->thread == memory.thread && s->legacy == s->context->legacy_stream);
}

bool ms_stream_enter(ms_stream_t id, struct ms_stream_use *use)
{
    ms_lock_acquire(MS_LOCK(STREAMS));
    struct stream *s = find_by_id(id);
    if (s && has_name(s)) {
        s->users++;
    } else {
        s = NULL;
    }
    ms_lock_release(MS_LOCK(STREAMS));
    if (!s) {
        return false;
    }
    if (!ms_scope_enter_context(s->context, &use->scope)) {
        let_record(s);
        return false;
    }
    use->handle = s->handle;
    use->context = s->context;
    use->record = s;
    return true;
}

void ms_stream_leave(struct ms_stream_use *use)
{
    let_record(use->record);
    ms_scope_leave(&use->scope);
}

/* Up to `count` of the context's streams; returns how many there are. */
static size_t streams_of(const struct ms_context *context, ms_stream_t *out, size_t count)
{
    size_t found = 0;
    ms_lock_acquire(MS_LOCK(STREAMS));
    for (const struct stream *s = NULL; (s = ms_chains_next(&by_handle, s)) != NULL;) {
        if (s->context == context) {
            if (found < count) {
                out[found] = s->id;
            }
            found++;
        }
    }
    ms_lock_release(MS_LOCK(STREAMS));
    return found;
}

bool ms_stream_list_take(const struct ms_context *context, struct ms_stream_list *out)
{
    size_t room = sizeof out->few / sizeof *out->few;
    out->at = out->few;
    out->count = streams_of(context, out->at, room);
    while (out->count > room) {
        ms_stream_list_drop(out);
        room += out->count; /* others may be created meanwhile */
        out->at = calloc(room, sizeof *out->at);
        out->count = out->at ? streams_of(context, out->at, room) : 0;
    }
    return out->at != NULL;
}

void ms_stream_list_drop(struct ms_stream_list *list)
{
    if (list->at != list->few) {
        free(list->at);
    }
}

/* One at a time, because each pool forgets it without this lock. */
void ms_streams_forget(const struct ms_context *context)
{
    ms_stream_t id = 0;
    do {
        ms_lock_acquire(MS_LOCK(STREAMS));
        struct stream *s = NULL;
        do {
            s = ms_chains_next(&by_id, s);
        } while (s && s->context != context);
        id = s ? s->id : 0;
        if (s) {
            unlink_locked(s);
            forget_locked(s);
        }
        ms_lock_release(MS_LOCK(STREAMS));
        if (id != 0) {
            ms_device_stream_gone(context->device, id);
        }
    } while (id != 0);
}

/* --- for captures ---------------------------------------------------------------------------- */

bool ms_stream_note_capturing(CUstream handle, bool per_thread, bool capturing)
{
    struct ms_stream_view view;
    bool changed = false;
    if (ms_stream_resolve(handle, per_thread, &view) == CUDA_SUCCESS) {
        ms_lock_acquire(MS_LOCK(STREAMS));
        struct stream *s = find_by_id(view.id);
        changed = s && s->capturing != capturing;
        if (changed) {
            s->capturing = capturing;
        }
        ms_lock_release(MS_LOCK(STREAMS));
    }
    return changed;
}

bool ms_stream_is_known(CUstream handle)
{
    ms_lock_acquire(MS_LOCK(STREAMS));
    bool known = handle == CU_STREAM_PER_THREAD || find_by_handle(handle) != NULL;
    ms_lock_release(MS_LOCK(STREAMS));
    return known;
}

/* --- destruction ------------------------------------------------------------------------------ */

/* Whether an unlinked record still has users. If it has after a while, they are left to destroy the
 * stream. A use is one driver call, which returns at once unless a queue is full: then it may wait
 * for what the program does next. */
static bool left_to_users(struct stream *s, CUresult (*real)(CUstream))
{
    for (unsigned naps = 0;; naps++) {
        ms_lock_acquire(MS_LOCK(STREAMS));
        bool used = s->users != 0;
        bool leave = used && naps == DESTROY_NAPS;
        if (leave) {
            s->destroy = real;
            forget_locked(s);
        }
        ms_lock_release(MS_LOCK(STREAMS));
        if (!used || leave) {
            return leave;
        }
        ms_nap(DESTROY_NAP_NS);
    }
}

/* The record leaves the tables before the driver is asked: as soon as the driver has destroyed the
 * stream, another may get its handle. */
static CUresult destroy_known(ms_stream_t id, CUstream handle, CUresult (*real)(CUstream))
{
    ms_lock_acquire(MS_LOCK(STREAMS));
    struct stream *s = find_by_id(id);
    if (s) {
        unlink_locked(s);
    }
    ms_lock_release(MS_LOCK(STREAMS));
    if (s && left_to_users(s, real)) {
        return CUDA_SUCCESS; /* as for a stream with unfinished work (cuda.h, cuStreamDestroy) */
    }
    CUresult result = real(handle);
    if (s) {
        ms_lock_acquire(MS_LOCK(STREAMS));
        if (result == CUDA_SUCCESS) {
            forget_locked(s);
        } else {
            link_locked(s);
        }
        ms_lock_release(MS_LOCK(STREAMS));
    }
    return result;
}

/* The pool takes its fences while the stream still can be fenced. What is queued there afterwards
 * belongs to the context. */
CUresult ms_stream_destroy(CUstream handle, CUresult (*real)(CUstream))
{
    ms_stream_t id = 0;
    struct ms_context *context = NULL;
    ms_lock_acquire(MS_LOCK(STREAMS));
    struct stream *s = find_by_handle(handle);
    if (s) {
        id = s->id;
        context = s->context;
    }
    ms_lock_release(MS_LOCK(STREAMS));
    if (!context) {
        return real(handle);
    }
    ms_device_stream_gone(context->device, id);
    ms_heirs_take(context, id);
    return destroy_known(id, handle, real);
}

static ms_stream_t find_of(const struct ms_context *context, CUcontext owner, ms_stream_t legacy)
{
    ms_stream_t id = 0;
    ms_lock_acquire(MS_LOCK(STREAMS));
    for (const struct stream *s = NULL; id == 0 && (s = ms_chains_next(&by_id, s)) != NULL;) {
        bool created = s->kind == CREATED && s->context == context && s->owner == owner;
        id = created || (s->kind == PER_THREAD && s->legacy == legacy) ? s->id : 0;
    }
    ms_lock_release(MS_LOCK(STREAMS));
    return id;
}

/* The driver does not destroy these streams, but they cannot be used any more (cuda.h,
 * cuGreenCtxDestroy). */
void ms_streams_end(struct ms_context *primary, CUcontext green, ms_stream_t legacy)
{
    ms_stream_t id = 0;
    while ((id = find_of(primary, green, legacy)) != 0) {
        ms_device_stream_gone(primary->device, id);
        ms_heirs_take(primary, id);
        ms_lock_acquire(MS_LOCK(STREAMS));
        struct stream *s = find_by_id(id);
        if (s) {
            unlink_locked(s);
            forget_locked(s);
        }
        ms_lock_release(MS_LOCK(STREAMS));
    }
}
