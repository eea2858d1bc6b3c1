/* Stream ids, the default streams of both flavours, and captures. */
#include "shim/serve/stream.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "shim/gate.h"
#include "shim/hot.h"
#include "shim/life.h"
#include "shim/serve/device.h"
#include "shim/serve/driver.h"

#define BUCKETS            1024u
#define HOLD_OFF_SPINS     100000 /* a record call that takes longer waits for the device itself */
#define THREAD_STREAM_HITS 4u

enum stream_kind { CREATED, LEGACY, PER_THREAD };

struct stream {
    ms_stream_t id;
    CUstream handle;
    struct ms_context *context;
    struct stream *next_by_handle, *next_by_id;
    uint64_t thread; /* of a per-thread default stream, else 0 */
    enum stream_kind kind;
    bool capturing;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream *by_handle[BUCKETS]; /* only CREATED ones: the others share two handles */
static struct stream *by_id[BUCKETS];
static _Atomic ms_stream_t last_id;
static _Atomic uint64_t last_thread;
static _Atomic uint64_t epoch; /* moves on when a stream goes: what a thread remembers is void */
MS_HOT_DATA static _Atomic int captures; /* streams that capture, or are about to */
static _Atomic int hold_offs; /* threads between ms_capture_hold_off and ms_capture_let_on */

/* What a thread remembers, so that the same stream again costs no lock. */
struct memory {
    uint64_t epoch;
    CUstream handle;
    struct ms_stream_view view;
    struct {
        ms_stream_t legacy; /* by which the context is known */
        ms_stream_t id;
    } own[THREAD_STREAM_HITS];
    unsigned own_next;
    uint64_t thread;
};
static _Thread_local struct memory memory __attribute__((tls_model("initial-exec")));

static pthread_once_t thread_end_once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_end_key;
static bool thread_ends_seen;

static size_t bucket_of(uint64_t value)
{
    return (size_t)((value * 0x9e3779b97f4a7c15ULL) >> 54);
}

ms_stream_t ms_stream_new_id(void)
{
    return atomic_fetch_add(&last_id, 1) + 1;
}

static struct stream *find_by_handle(CUstream handle)
{
    struct stream *s = by_handle[bucket_of((uint64_t)(uintptr_t)handle)];
    while (s && s->handle != handle) {
        s = s->next_by_handle;
    }
    return s;
}

static struct stream *find_by_id(ms_stream_t id)
{
    struct stream *s = by_id[bucket_of(id)];
    while (s && s->id != id) {
        s = s->next_by_id;
    }
    return s;
}

static void link_locked(struct stream *s)
{
    struct stream **slot = &by_id[bucket_of(s->id)];
    s->next_by_id = *slot;
    *slot = s;
    if (s->kind == CREATED) {
        slot = &by_handle[bucket_of((uint64_t)(uintptr_t)s->handle)];
        s->next_by_handle = *slot;
        *slot = s;
    }
}

/* What threads remember is void afterwards. */
static void unlink_locked(struct stream *s)
{
    struct stream **slot = &by_id[bucket_of(s->id)];
    while (*slot != s) {
        slot = &(*slot)->next_by_id;
    }
    *slot = s->next_by_id;
    if (s->kind == CREATED) {
        slot = &by_handle[bucket_of((uint64_t)(uintptr_t)s->handle)];
        while (*slot != s) {
            slot = &(*slot)->next_by_handle;
        }
        *slot = s->next_by_handle;
    }
    atomic_fetch_add(&epoch, 1);
}

static void forget(struct stream *s)
{
    if (s->capturing) {
        atomic_fetch_sub(&captures, 1);
    }
    free(s);
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
        context->legacy_stream = ms_stream_new_id(); /* unknown by id: marked as the device is */
        return;
    }
    context->legacy_stream = s->id;
    pthread_mutex_lock(&lock);
    link_locked(s);
    pthread_mutex_unlock(&lock);
}

/* A handle without a record: created on a road that is not hooked, or just now. */
static CUresult adopt(CUstream handle, struct ms_stream_view *out)
{
    CUcontext owner = NULL;
    CUresult result = ms_driver()->cuStreamGetCtx(handle, &owner);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct ms_context *context = ms_context_of(owner);
    if (!context) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    struct stream *fresh = new_stream(CREATED, handle, context);
    if (!fresh) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&lock);
    struct stream *s = find_by_handle(handle);
    if (s && s->context->dead) {
        unlink_locked(s);
        forget(s);
        s = NULL;
    }
    if (!s) {
        link_locked(fresh);
        s = fresh;
        fresh = NULL;
    }
    *out = (struct ms_stream_view){s->id, s->context};
    pthread_mutex_unlock(&lock);
    free(fresh);
    return CUDA_SUCCESS;
}

/* --- the per-thread default streams --------------------------------------------------------- */

static void thread_ended(void *value)
{
    uint64_t thread = (uint64_t)(uintptr_t)value;
    while (!ms_life_inert()) {
        pthread_mutex_lock(&lock);
        struct stream *s = NULL;
        for (size_t b = 0; b < BUCKETS && !s; b++) {
            s = by_id[b];
            while (s && s->thread != thread) {
                s = s->next_by_id;
            }
        }
        ms_stream_t id = s ? s->id : 0;
        struct ms_context *context = s ? s->context : NULL;
        if (s) {
            /* Gone from here on: its mark is the device's, since its handle names nothing on
             * any other thread, and soon nothing on this one. */
            unlink_locked(s);
            forget(s);
        }
        pthread_mutex_unlock(&lock);
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

static CUresult resolve_own(struct ms_context *context, ms_stream_t *out)
{
    const ms_stream_t legacy = context->legacy_stream;
    for (unsigned i = 0; i < THREAD_STREAM_HITS; i++) {
        if (memory.own[i].legacy == legacy && !context->dead) {
            *out = memory.own[i].id;
            return CUDA_SUCCESS;
        }
    }
    if (memory.thread == 0) {
        memory.thread = atomic_fetch_add(&last_thread, 1) + 1;
        pthread_once(&thread_end_once, make_thread_end_key);
        if (thread_ends_seen) { /* else its stream stays known, and is marked as the device is */
            pthread_setspecific(thread_end_key, (void *)(uintptr_t)memory.thread);
        }
    }
    pthread_mutex_lock(&lock);
    struct stream *s = NULL;
    for (size_t b = 0; b < BUCKETS && !s; b++) {
        s = by_id[b];
        while (s && (s->thread != memory.thread || s->context != context)) {
            s = s->next_by_id;
        }
    }
    if (!s) {
        s = new_stream(PER_THREAD, CU_STREAM_PER_THREAD, context);
        if (s) {
            s->thread = memory.thread;
            link_locked(s);
        }
    }
    *out = s ? s->id : 0;
    pthread_mutex_unlock(&lock);
    if (*out == 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    unsigned i = memory.own_next++ % THREAD_STREAM_HITS;
    memory.own[i].legacy = legacy;
    memory.own[i].id = *out;
    return CUDA_SUCCESS;
}

/* --- resolving ------------------------------------------------------------------------------- */

static CUstream plain_handle(CUstream handle, bool per_thread)
{
    if (handle) {
        return handle;
    }
    return per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

CUresult ms_stream_resolve(CUstream handle, bool per_thread, struct ms_stream_view *out)
{
    handle = plain_handle(handle, per_thread);
    if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        out->context = ms_context_current();
        if (!out->context) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        if (handle == CU_STREAM_PER_THREAD) {
            return resolve_own(out->context, &out->id);
        }
        out->id = out->context->legacy_stream;
        return CUDA_SUCCESS;
    }
    uint64_t now = atomic_load(&epoch);
    if (memory.handle == handle && memory.epoch == now && !memory.view.context->dead) {
        *out = memory.view;
        return CUDA_SUCCESS;
    }
    pthread_mutex_lock(&lock);
    struct stream *s = find_by_handle(handle);
    bool known = s && !s->context->dead;
    if (known) {
        *out = (struct ms_stream_view){s->id, s->context};
    }
    pthread_mutex_unlock(&lock);
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

bool ms_stream_handle(ms_stream_t id, CUstream *handle, struct ms_context **context)
{
    pthread_mutex_lock(&lock);
    const struct stream *s = find_by_id(id);
    bool usable = s && !s->context->dead && (s->kind != PER_THREAD || s->thread == memory.thread);
    if (usable) {
        *handle = s->handle;
        *context = s->context;
        ms_context_hold(s->context);
    }
    pthread_mutex_unlock(&lock);
    return usable;
}

size_t ms_streams_of(const struct ms_context *context, CUstream *out, size_t count)
{
    size_t found = 0;
    pthread_mutex_lock(&lock);
    for (size_t b = 0; b < BUCKETS; b++) {
        for (const struct stream *s = by_handle[b]; s; s = s->next_by_handle) {
            if (s->context == context) {
                if (found < count) {
                    out[found] = s->handle;
                }
                found++;
            }
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void ms_streams_forget(const struct ms_context *context)
{
    pthread_mutex_lock(&lock);
    for (size_t b = 0; b < BUCKETS; b++) {
        struct stream *s = by_id[b];
        while (s) {
            struct stream *next = s->next_by_id;
            if (s->context == context) {
                unlink_locked(s);
                forget(s);
            }
            s = next;
        }
    }
    pthread_mutex_unlock(&lock);
}

/* --- captures -------------------------------------------------------------------------------- */

MS_HOT bool ms_captures_running(void)
{
    return atomic_load(&captures) != 0;
}

bool ms_stream_captures(CUstream handle, bool per_thread)
{
    if (!ms_captures_running()) {
        return false;
    }
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = ms_driver()->cuStreamIsCapturing(plain_handle(handle, per_thread), &status);
    /* An error here (the legacy stream, while a blocking one captures) is what the application's
     * own call would meet too: the caller forwards that call, as it does for a capturing stream. */
    return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool ms_capture_hold_off(void)
{
    atomic_fetch_add(&hold_offs, 1);
    if (ms_captures_running()) {
        atomic_fetch_sub(&hold_offs, 1);
        return false;
    }
    return true;
}

void ms_capture_let_on(void)
{
    atomic_fetch_sub(&hold_offs, 1);
}

/* Announces a capture, after what is done has been seen, and waits for whoever records an event for
 * a whole context just now. The wait is bounded: recording blocks only where a full queue waits for
 * the device, and the capture must not depend on that. */
static void announce(void)
{
    atomic_fetch_add(&captures, 1);
    for (int i = 0; i < HOLD_OFF_SPINS && atomic_load(&hold_offs) != 0; i++) {
        sched_yield();
    }
}

static void capture_announce(void)
{
    ms_devices_settle();
    ms_gate_enter(); /* until the driver has begun it: none begins while contents move */
    announce();
}

/* True where this changes what is noted of the stream. */
static bool note_capturing(CUstream handle, bool per_thread, bool capturing)
{
    struct ms_stream_view view;
    bool changed = false;
    if (ms_stream_resolve(handle, per_thread, &view) == CUDA_SUCCESS) {
        pthread_mutex_lock(&lock);
        struct stream *s = find_by_id(view.id);
        changed = s && s->capturing != capturing;
        if (changed) {
            s->capturing = capturing;
        }
        pthread_mutex_unlock(&lock);
    }
    return changed;
}

static CUresult capture_begun(CUstream handle, bool per_thread, CUresult result)
{
    ms_gate_leave();
    if (result != CUDA_SUCCESS || !note_capturing(handle, per_thread, true)) {
        atomic_fetch_sub(&captures, 1);
    }
    return result;
}

/* A capture that was invalidated has ended although the call says otherwise; one that another
 * thread must end has not. The driver knows which. */
static CUresult capture_ended(CUstream handle, bool per_thread, CUresult result)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    bool goes_on = result != CUDA_SUCCESS &&
                   ms_driver()->cuStreamIsCapturing(plain_handle(handle, per_thread), &status) ==
                       CUDA_SUCCESS &&
                   status != CU_STREAM_CAPTURE_STATUS_NONE;
    if (!goes_on && note_capturing(handle, per_thread, false)) {
        atomic_fetch_sub(&captures, 1);
    }
    return result;
}

void ms_captures_unseen(void)
{
    static atomic_bool unseen;
    if (!atomic_exchange(&unseen, true)) {
        ms_devices_settle();
        announce();
        ms_log(MS_LOG_WARN, "the program may capture graphs in a way that memshim does not know: "
                            "from here on memory is treated as while a graph is captured, and "
                            "some of it may not serve again");
    }
}

/* The driver is not asked about a handle that may be none. The legacy stream is never captured. */
static bool is_known(CUstream handle)
{
    pthread_mutex_lock(&lock);
    bool known = handle == CU_STREAM_PER_THREAD || find_by_handle(handle) != NULL;
    pthread_mutex_unlock(&lock);
    return known;
}

void ms_capture_begins(CUstream handle)
{
    if (!is_known(plain_handle(handle, true))) {
        ms_captures_unseen();
        return;
    }
    ms_devices_settle();
    announce();
    if (!note_capturing(handle, true, true)) {
        atomic_fetch_sub(&captures, 1); /* it captures already */
    }
}

CUresult ms_serve_cuStreamBeginCapture(CUstream hStream)
{
    capture_announce();
    return capture_begun(hStream, false, MS_REAL(cuStreamBeginCapture)(hStream));
}

CUresult ms_serve_cuStreamBeginCapture_ptsz(CUstream hStream)
{
    capture_announce();
    return capture_begun(hStream, true, MS_REAL(cuStreamBeginCapture_ptsz)(hStream));
}

CUresult ms_serve_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
    capture_announce();
    return capture_begun(hStream, false, MS_REAL(cuStreamBeginCapture_v2)(hStream, mode));
}

CUresult ms_serve_cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode)
{
    capture_announce();
    return capture_begun(hStream, true, MS_REAL(cuStreamBeginCapture_v2_ptsz)(hStream, mode));
}

CUresult ms_serve_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                              const CUgraphNode *dependencies,
                                              const CUgraphEdgeData *dependencyData,
                                              size_t numDependencies, CUstreamCaptureMode mode)
{
    capture_announce();
    return capture_begun(hStream, false,
                         MS_REAL(cuStreamBeginCaptureToGraph)(
                             hStream, hGraph, dependencies, dependencyData, numDependencies, mode));
}

CUresult ms_serve_cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph,
                                                   const CUgraphNode *dependencies,
                                                   const CUgraphEdgeData *dependencyData,
                                                   size_t numDependencies, CUstreamCaptureMode mode)
{
    capture_announce();
    return capture_begun(hStream, true,
                         MS_REAL(cuStreamBeginCaptureToGraph_ptsz)(
                             hStream, hGraph, dependencies, dependencyData, numDependencies, mode));
}

CUresult ms_serve_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    return capture_ended(hStream, false, MS_REAL(cuStreamEndCapture)(hStream, phGraph));
}

CUresult ms_serve_cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph)
{
    return capture_ended(hStream, true, MS_REAL(cuStreamEndCapture_ptsz)(hStream, phGraph));
}

/* --- creation and destruction ---------------------------------------------------------------- */

/* So that a mark of the device knows of the stream from its first work on. */
static CUresult created(CUstream *stream, CUresult result)
{
    struct ms_stream_view view;
    if (result == CUDA_SUCCESS && stream) {
        (void)ms_stream_resolve(*stream, false, &view); /* else it is adopted at its first use */
    }
    return result;
}

CUresult ms_serve_cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    return created(phStream, MS_REAL(cuStreamCreate)(phStream, Flags));
}

CUresult ms_serve_cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    return created(phStream, MS_REAL(cuStreamCreateWithPriority)(phStream, flags, priority));
}

CUresult ms_serve_cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx,
                                         unsigned int flags, int priority)
{
    return created(phStream, MS_REAL(cuGreenCtxStreamCreate)(phStream, greenCtx, flags, priority));
}

/* The pool takes its marks while the stream can still be marked. The record goes before the driver
 * is asked: as soon as that has forgotten the stream, another may get its handle. */
static CUresult destroy(CUstream handle, CUresult (*real)(CUstream))
{
    ms_stream_t id = 0;
    struct ms_device *device = NULL;
    pthread_mutex_lock(&lock);
    struct stream *s = find_by_handle(handle);
    if (s) {
        id = s->id;
        device = s->context->device;
    }
    pthread_mutex_unlock(&lock);
    if (device) {
        ms_device_stream_gone(device, id);
    }
    pthread_mutex_lock(&lock);
    s = device ? find_by_id(id) : NULL;
    if (s) {
        unlink_locked(s);
    }
    pthread_mutex_unlock(&lock);
    CUresult result = real(handle);
    if (s && result == CUDA_SUCCESS) {
        forget(s);
    } else if (s) {
        pthread_mutex_lock(&lock);
        link_locked(s);
        pthread_mutex_unlock(&lock);
    }
    return result;
}

CUresult ms_serve_cuStreamDestroy(CUstream hStream)
{
    return destroy(hStream, MS_REAL(cuStreamDestroy));
}

CUresult ms_serve_cuStreamDestroy_v2(CUstream hStream)
{
    return destroy(hStream, MS_REAL(cuStreamDestroy_v2));
}

void ms_streams_fork_prepare(void)
{
    pthread_mutex_lock(&lock);
}

void ms_streams_fork_parent(void)
{
    pthread_mutex_unlock(&lock);
}

void ms_streams_fork_child(void)
{
    pthread_mutex_init(&lock, NULL);
}
