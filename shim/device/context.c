/* SPDX-License-Identifier: Apache-2.0 */
/* Records of contexts, and scopes that make one current for a while. */
#include "shim/device/context.h"

#include <sched.h>
#include <stdlib.h>

#include "allocator/base/cancel.h"
#include "allocator/base/locks/lock.h"
#include "shim/device/capture.h"
#include "shim/device/device.h"
#include "shim/device/green.h"
#include "shim/device/overhead.h"
#include "shim/device/stream.h"
#include "shim/driver/driver.h"
#include "shim/driver/gate.h"
#include "shim/process/log.h"

/* How long a call that destroys a context waits for its users. */
#define CLOSE_YIELDS 100u
#define CLOSE_NAPS   300000u
#define CLOSE_NAP_NS 200000u

/* How long a thread waits for the end of such a call, to see whether the context lives on. */
#define CLOSING_NAPS   20000u
#define CLOSING_NAP_NS 50000u

_Atomic int ms_contexts_unlaunched;

static struct ms_context *_Atomic first;

static _Thread_local struct ms_context *last __attribute__((tls_model("initial-exec")));

struct ms_context *ms_context_first(void)
{
    return atomic_load_explicit(&first, memory_order_acquire);
}

struct ms_context *ms_context_find(CUcontext handle)
{
    for (struct ms_context *c = ms_context_first(); c; c = c->next) {
        if (c->handle == handle && !c->dead) {
            return c;
        }
    }
    return NULL;
}

static CUresult is_primary(CUcontext handle, CUdevice device, bool *primary)
{
    unsigned int flags = 0;
    int active = 0;
    CUcontext retained = NULL;
    *primary = false;
    CUresult result = ms_driver()->cuDevicePrimaryCtxGetState(device, &flags, &active);
    if (result == CUDA_SUCCESS && active) {
        result = MS_REAL(cuDevicePrimaryCtxRetain)(&retained, device);
    }
    if (retained) {
        (void)MS_REAL(cuDevicePrimaryCtxRelease_v2)(device);
        *primary = retained == handle;
    }
    return result;
}

/* A record for a context of the device, marked dead; null without host memory. The caller holds the
 * lock. */
static struct ms_context *record_for(struct ms_device *device, bool primary)
{
    for (struct ms_context *c = ms_context_first(); c; c = c->next) {
        if (c->device == device && c->primary == primary && c->dead && c->holds == 0) {
            return c;
        }
    }
    struct ms_context *fresh = calloc(1, sizeof *fresh);
    if (fresh) {
        fresh->holder.kind = MS_HOLDER_CONTEXT;
        fresh->device = device;
        fresh->primary = primary;
        fresh->dead = true;
        fresh->next = first;
        atomic_store_explicit(&first, fresh, memory_order_release);
    }
    return fresh;
}

/* A new record. No other thread uses it until it is marked live. The caller holds the lock. */
static struct ms_context *begin(CUcontext handle, struct ms_device *device, bool primary)
{
    struct ms_context *context = record_for(device, primary);
    if (context) {
        context->handle = handle;
        context->launched = false;
        context->heir = 0;
        ms_stream_add_legacy(context);
        atomic_fetch_add(&ms_contexts_unlaunched, 1);
        ms_gate_watch_launches(true);
        context->dead = false;
    }
    return context;
}

/* Adds the current context. Making its device may call the driver, so no lock is held. */
static CUresult add(CUcontext handle, struct ms_context **out, bool *is_new)
{
    CUdevice ordinal = 0;
    struct ms_device *device = NULL;
    bool primary = false;
    *out = NULL;
    *is_new = false;
    CUresult result = ms_driver()->cuCtxGetDevice(&ordinal);
    if (result == CUDA_SUCCESS) {
        result = ms_device_use(ordinal, &device);
    }
    if (result != CUDA_SUCCESS || !device) {
        return result;
    }
    result = is_primary(handle, ordinal, &primary);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    ms_lock_acquire(MS_LOCK(CONTEXTS));
    struct ms_context *context = ms_context_find(handle);
    *is_new = !context;
    if (!context) {
        context = begin(handle, device, primary);
    }
    ms_lock_release(MS_LOCK(CONTEXTS));
    *out = context;
    return context ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Adds a context whose creation was not seen. After a reset the driver revives a primary context by
 * itself, and some contexts may be older than memshim's hooks. */
static CUresult adopt(CUcontext handle, struct ms_context **out)
{
    bool is_new = false;
    CUresult result = add(handle, out, &is_new);
    if (*out && is_new) {
        ms_overhead_charge(*out, MS_CHARGE_CONTEXT, ms_overhead_guess((*out)->device));
    }
    return result;
}

/* A current context that is not the thread's last one. */
static __attribute__((noinline)) CUresult query_other(CUcontext handle, struct ms_context **out,
                                                      ms_stream_t *legacy)
{
    CUresult result = CUDA_SUCCESS;
    struct ms_context *green = ms_green_primary(handle, legacy);
    if (green) {
        *out = green;
        return CUDA_SUCCESS;
    }
    last = ms_context_find(handle);
    if (!last) {
        result = adopt(handle, &last);
    }
    *out = last;
    if (last) {
        *legacy = last->legacy_stream;
    }
    return result;
}

CUresult ms_context_query_stream(struct ms_context **out, ms_stream_t *legacy)
{
    CUcontext handle = NULL;
    *out = NULL;
    CUresult result = ms_driver()->cuCtxGetCurrent(&handle);
    if (result != CUDA_SUCCESS || !handle) {
        return result;
    }
    struct ms_context *known = last;
    if (__builtin_expect(!known || known->handle != handle || known->dead, 0)) {
        return query_other(handle, out, legacy);
    }
    *out = known;
    *legacy = known->legacy_stream;
    return CUDA_SUCCESS;
}

CUresult ms_context_query(struct ms_context **out)
{
    ms_stream_t legacy = 0;
    return ms_context_query_stream(out, &legacy);
}

struct ms_context *ms_context_current(void)
{
    struct ms_context *context = NULL;
    (void)ms_context_query(&context);
    return context;
}

CUresult ms_context_of(CUcontext handle, struct ms_context **out)
{
    ms_stream_t legacy = 0;
    *out = handle ? ms_context_find(handle) : NULL;
    if (handle && !*out) {
        *out = ms_green_primary(handle, &legacy);
    }
    if (*out) {
        return CUDA_SUCCESS;
    }
    CUresult result =
        handle ? ms_driver()->cuCtxPushCurrent_v2(handle) : CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS) {
        result = adopt(handle, out);
        (void)ms_driver()->cuCtxPopCurrent_v2(&handle);
    }
    return result;
}

struct ms_context *ms_context_created(CUcontext handle, uint64_t overhead_bytes)
{
    bool is_new = false;
    struct ms_context *context = NULL;
    if (ms_driver()->cuCtxPushCurrent_v2(handle) != CUDA_SUCCESS) {
        return NULL; /* it is adopted at its first use */
    }
    (void)add(handle, &context, &is_new);
    CUcontext popped = NULL;
    (void)ms_driver()->cuCtxPopCurrent_v2(&popped);
    if (context && is_new) {
        uint64_t none = 0;
        if (overhead_bytes == 0 || overhead_bytes >= MS_OVERHEAD_MOST_BYTES) {
            overhead_bytes = ms_overhead_guess(context->device);
        }
        atomic_compare_exchange_strong(&context->device->first_overhead_bytes, &none,
                                       overhead_bytes);
        ms_overhead_charge(context, MS_CHARGE_CONTEXT, overhead_bytes);
    }
    return context;
}

struct ms_context *ms_context_any(const struct ms_device *device)
{
    struct ms_context *any = NULL;
    for (struct ms_context *c = ms_context_first(); c; c = c->next) {
        if (c->device == device && !c->dead) {
            if (c->primary) {
                return c;
            }
            any = c;
        }
    }
    return any;
}

struct ms_context *ms_context_any_used(const struct ms_device *device)
{
    struct ms_context *any = ms_context_any(device);
    if (any && ms_context_use(any)) {
        return any;
    }
    for (struct ms_context *c = ms_context_first(); c; c = c->next) {
        if (c->device == device && ms_context_use(c)) {
            return c;
        }
    }
    return NULL;
}

struct ms_context *ms_context_any_awaited(const struct ms_device *device)
{
    struct ms_context *any = ms_context_any_used(device);
    for (unsigned naps = 0; any == NULL && naps < CLOSING_NAPS && ms_context_any(device); naps++) {
        ms_nap(CLOSING_NAP_NS);
        any = ms_context_any_used(device);
    }
    return any;
}

/* --- uses ------------------------------------------------------------------------------------- */

void ms_context_close(struct ms_context *context)
{
    ms_context_hold(context);
    atomic_fetch_add(&context->closers, 1);
    for (unsigned i = 0; i < CLOSE_YIELDS && atomic_load(&context->users) != 0; i++) {
        sched_yield();
    }
    for (unsigned i = 0; i < CLOSE_NAPS && atomic_load(&context->users) != 0; i++) {
        ms_nap(CLOSE_NAP_NS);
    }
    if (atomic_load(&context->users) != 0) {
        MS_LOG_ONCE(MS_LOG_WARN,
                    "device %d: a context is destroyed while a call of the driver that memshim "
                    "made in it has not returned",
                    context->device->ordinal);
    }
}

void ms_context_reopen(struct ms_context *context)
{
    atomic_fetch_sub(&context->closers, 1);
    ms_context_let(context);
}

void ms_context_make_current(const struct ms_device *device)
{
    CUcontext current = NULL;
    struct ms_context *context = ms_context_any_used(device);
    if (context == NULL) {
        return;
    }
    const int cancellation = ms_cancel_hold();
    if (context->primary && ms_driver()->cuCtxGetCurrent(&current) == CUDA_SUCCESS && !current) {
        (void)ms_driver()->cuCtxPushCurrent_v2(context->handle);
    }
    ms_context_leave(context);
    ms_cancel_let(cancellation);
}

/* --- scopes ----------------------------------------------------------------------------------- */

static void relax_captures(struct ms_scope *scope)
{
    scope->exchanged = false;
    if (ms_captures_running()) {
        scope->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        scope->exchanged =
            ms_driver()->cuThreadExchangeStreamCaptureMode(&scope->mode) == CUDA_SUCCESS;
    }
}

bool ms_scope_enter_context(struct ms_context *context, struct ms_scope *scope)
{
    CUcontext current = NULL;
    scope->pushed = false;
    if (!ms_context_use(context)) {
        return false;
    }
    scope->used = context;
    scope->cancellation = ms_cancel_hold();
    relax_captures(scope);
    if (ms_driver()->cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != context->handle) {
        scope->pushed = ms_driver()->cuCtxPushCurrent_v2(context->handle) == CUDA_SUCCESS;
    }
    return true;
}

void ms_scope_enter(const struct ms_device *device, struct ms_scope *scope)
{
    CUdevice current = -1;
    scope->pushed = false;
    scope->used = NULL;
    relax_captures(scope);
    if (ms_driver()->cuCtxGetDevice(&current) == CUDA_SUCCESS && current == device->handle) {
        return;
    }
    scope->used = ms_context_any_used(device);
    if (scope->used) {
        scope->cancellation = ms_cancel_hold();
        scope->pushed = ms_driver()->cuCtxPushCurrent_v2(scope->used->handle) == CUDA_SUCCESS;
    }
}

void ms_scope_leave(struct ms_scope *scope)
{
    if (scope->pushed) {
        CUcontext popped = NULL;
        (void)ms_driver()->cuCtxPopCurrent_v2(&popped);
    }
    if (scope->exchanged) {
        (void)ms_driver()->cuThreadExchangeStreamCaptureMode(&scope->mode);
    }
    if (scope->used) {
        ms_context_leave(scope->used);
        ms_cancel_let(scope->cancellation);
    }
}
