/* Records of contexts, and making one current for a while. */
#include "shim/serve/context.h"

#include <pthread.h>
#include <stdlib.h>

#include "shim/gate.h"
#include "shim/serve/device.h"
#include "shim/serve/driver.h"
#include "shim/serve/overhead.h"
#include "shim/serve/stream.h"

/* More than this was taken by somebody else while a context was created. */
#define MOST_PLAUSIBLE_BYTES (2ULL << 30)

_Atomic int ms_contexts_unlaunched;

static struct ms_context *_Atomic first;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held while a context is added */

static _Thread_local struct ms_context *last __attribute__((tls_model("initial-exec")));

struct ms_context *ms_context_first(void)
{
    return atomic_load_explicit(&first, memory_order_acquire);
}

static struct ms_context *find(CUcontext handle)
{
    for (struct ms_context *c = ms_context_first(); c; c = c->next) {
        if (c->handle == handle && !c->dead) {
            return c;
        }
    }
    return NULL;
}

static bool is_primary(CUcontext handle, CUdevice device)
{
    unsigned int flags = 0;
    int active = 0;
    CUcontext primary = NULL;
    if (ms_driver()->cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS ||
        !active || MS_REAL(cuDevicePrimaryCtxRetain)(&primary, device) != CUDA_SUCCESS) {
        return false;
    }
    (void)MS_REAL(cuDevicePrimaryCtxRelease_v2)(device);
    return primary == handle;
}

/* A record for a context of the device, marked dead; null where the host has no memory. Under the
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

/* Until it is no longer dead nobody looks at it. Under the lock. */
static struct ms_context *begin(CUcontext handle, struct ms_device *device, bool primary)
{
    struct ms_context *context = record_for(device, primary);
    if (context) {
        context->handle = handle;
        context->launched = false;
        ms_stream_add_legacy(context);
        atomic_fetch_add(&ms_contexts_unlaunched, 1);
        ms_gate_watch_launches(true);
        context->dead = false;
    }
    return context;
}

/* The context is current. Creating the device may call the driver: no lock is held meanwhile. */
static struct ms_context *add(CUcontext handle, bool *is_new)
{
    CUdevice ordinal = 0;
    if (ms_driver()->cuCtxGetDevice(&ordinal) != CUDA_SUCCESS) {
        return NULL;
    }
    struct ms_device *device = ms_device_use(ordinal);
    if (!device) {
        return NULL;
    }
    bool primary = is_primary(handle, ordinal);
    pthread_mutex_lock(&lock);
    struct ms_context *context = find(handle);
    *is_new = !context;
    if (!context) {
        context = begin(handle, device, primary);
    }
    pthread_mutex_unlock(&lock);
    return context;
}

/* A context that was not seen to be created: after a reset the driver brings a primary one back to
 * life by itself, and some may be older than memshim's hooks. */
static struct ms_context *adopt(CUcontext handle)
{
    bool is_new = false;
    struct ms_context *context = add(handle, &is_new);
    if (context && is_new) {
        ms_overhead_charge(context, MS_CHARGE_CONTEXT, ms_overhead_guess(context->device));
    }
    return context;
}

struct ms_context *ms_context_current(void)
{
    CUcontext handle = NULL;
    if (ms_driver()->cuCtxGetCurrent(&handle) != CUDA_SUCCESS || !handle) {
        return NULL;
    }
    if (last && last->handle == handle && !last->dead) {
        return last;
    }
    struct ms_context *context = find(handle);
    if (!context) {
        context = adopt(handle);
    }
    last = context;
    return context;
}

struct ms_context *ms_context_of(CUcontext handle)
{
    struct ms_context *context = find(handle);
    if (!context && handle && ms_driver()->cuCtxPushCurrent_v2(handle) == CUDA_SUCCESS) {
        context = adopt(handle);
        (void)ms_driver()->cuCtxPopCurrent_v2(&handle);
    }
    return context;
}

struct ms_context *ms_context_created(CUcontext handle, uint64_t overhead_bytes)
{
    bool is_new = false;
    if (ms_driver()->cuCtxPushCurrent_v2(handle) != CUDA_SUCCESS) {
        return NULL;
    }
    struct ms_context *context = add(handle, &is_new);
    CUcontext popped = NULL;
    (void)ms_driver()->cuCtxPopCurrent_v2(&popped);
    if (context && is_new) {
        uint64_t none = 0;
        if (overhead_bytes == 0 || overhead_bytes > MOST_PLAUSIBLE_BYTES) {
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

void ms_scope_enter_context(const struct ms_context *context, struct ms_scope *scope)
{
    CUcontext current = NULL;
    scope->pushed = false;
    relax_captures(scope);
    if (ms_driver()->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context->handle) {
        return;
    }
    scope->pushed = ms_driver()->cuCtxPushCurrent_v2(context->handle) == CUDA_SUCCESS;
}

void ms_scope_enter(const struct ms_device *device, struct ms_scope *scope)
{
    CUdevice current = -1;
    scope->pushed = false;
    relax_captures(scope);
    if (ms_driver()->cuCtxGetDevice(&current) == CUDA_SUCCESS && current == device->handle) {
        return;
    }
    const struct ms_context *context = ms_context_any(device);
    if (context) {
        scope->pushed = ms_driver()->cuCtxPushCurrent_v2(context->handle) == CUDA_SUCCESS;
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
}

void ms_contexts_fork_prepare(void)
{
    pthread_mutex_lock(&lock);
}

void ms_contexts_fork_parent(void)
{
    pthread_mutex_unlock(&lock);
}

void ms_contexts_fork_child(void)
{
    pthread_mutex_init(&lock, NULL);
}
