/* SPDX-License-Identifier: Apache-2.0 */
/* Measures what the driver takes, and charges contexts for it. */
#include "shim/device/overhead.h"

#include "allocator/base/arithmetic.h"
#include "allocator/base/cancel.h"
#include "allocator/base/locks/lock.h"
#include "allocator/base/units.h"
#include "shim/device/capture.h"
#include "shim/device/context.h"
#include "shim/device/graph_memory.h"
#include "shim/driver/driver.h"
#include "shim/driver/nvml.h"
#include "shim/group/group.h"
#include "shim/process/log.h"
#include "shim/process/session.h"

#define SAMPLES          4
#define SAMPLES_APART_NS 1000000

/* For a moment in which no thread launches a graph that allocates. */
#define GRAPH_TRIES          32
#define GRAPH_TRIES_APART_NS 50000

/* Contexts of current devices and drivers take 250 to 600 MiB. This guess is only used if neither
 * the driver nor NVML could be asked before the context existed. */
#define GUESS_BYTES (512ULL << 20)

static bool used_by_driver(struct ms_device *device, uint64_t *used_bytes)
{
    if (!ms_context_any(device) || ms_captures_running()) {
        return false;
    }
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    struct ms_scope scope;
    ms_scope_enter(device, &scope);
    CUresult result = MS_REAL(cuMemGetInfo_v2)(&free_bytes, &total_bytes);
    ms_scope_leave(&scope);
    if (result != CUDA_SUCCESS || free_bytes > total_bytes) {
        return false;
    }
    *used_bytes = total_bytes - free_bytes;
    return true;
}

bool ms_device_used_bytes(struct ms_device *device, uint64_t *used_bytes)
{
    return used_by_driver(device, used_bytes) || ms_nvml_used_bytes(device->uuid, used_bytes);
}

static bool used_by_nvml(struct ms_device *device, uint64_t *used_bytes)
{
    return ms_nvml_used_bytes(device->uuid, used_bytes);
}

/* False: NVML does not say. *own_bytes is 0 if this process is not in its list. */
static bool used_by_own(struct ms_device *device, uint64_t *own_bytes)
{
    return ms_nvml_own_bytes(device->uuid, own_bytes);
}

typedef bool ask_used(struct ms_device *device, uint64_t *used_bytes);

/* Whether both answers, what is in use and what the driver holds for graphs, are of one moment: no
 * call that may change the latter was under way meanwhile. */
static bool asked_at_once(struct ms_device *device, ask_used *ask, uint64_t *used_bytes,
                          uint64_t *held_bytes, bool *known)
{
    bool changing = false;
    bool changes = false;
    const uint64_t before = ms_graph_memory_changes(&changing);
    *known = ask(device, used_bytes);
    *held_bytes = ms_graph_memory_held(device);
    return ms_graph_memory_changes(&changes) == before && !changing;
}

/* What is in use, without what the driver holds for graphs. False: not known, also if other threads
 * keep changing the latter. */
static bool ask_without_graphs(struct ms_device *device, ask_used *ask, uint64_t *used_bytes)
{
    bool known = false;
    uint64_t held_bytes = 0;
    int tries = 0;
    while (!asked_at_once(device, ask, used_bytes, &held_bytes, &known)) {
        if (!known || ++tries == GRAPH_TRIES) {
            return false;
        }
        ms_nap(GRAPH_TRIES_APART_NS);
    }
    *used_bytes = ms_less(*used_bytes, held_bytes);
    return known;
}

/* Under the lock a change of what is charged for graphs is whole. */
static uint64_t charged_without_graphs(struct ms_device *device) MS_REQUIRES(device->measuring)
{
    return atomic_load(&device->budget.charged_bytes) - atomic_load(&device->graph_bytes);
}

/* Without the lock, because the first question loads NVML. */
static void ask_first(struct ms_device *device, struct ms_measure *measure)
{
    measure->own_known = ask_without_graphs(device, used_by_own, &measure->own_bytes);
    if (measure->own_known && measure->own_bytes != 0) {
        measure->by = MS_MEASURE_BY_OWN;
    } else if (ask_without_graphs(device, used_by_driver, &measure->used_bytes)) {
        measure->by = MS_MEASURE_BY_DRIVER;
    } else if (ask_without_graphs(device, used_by_nvml, &measure->used_bytes)) {
        measure->by = MS_MEASURE_BY_NVML;
    }
}

void ms_measure_begin(struct ms_device *device, struct ms_measure *measure)
{
    *measure = (struct ms_measure){0};
    if (!device || ms_captures_running()) {
        return;
    }
    measure->device = device;
    ms_lock_acquire(&device->measuring);
    measure->charged_bytes = charged_without_graphs(device);
    ms_lock_release(&device->measuring);
    ask_first(device, measure);
}

/* How much more is in use than at the beginning, up to a plausible limit. False: not known. */
static bool compare(const struct ms_measure *measure, int64_t *more_bytes)
{
    struct ms_device *device = measure->device;
    uint64_t now_bytes = 0;
    /* A process enters the list with its first context. */
    if (measure->own_known && ask_without_graphs(device, used_by_own, &now_bytes) &&
        now_bytes != 0) {
        *more_bytes = (int64_t)(now_bytes - measure->own_bytes);
        return true;
    }
    if (measure->by == MS_MEASURE_BY_OWN || measure->by == MS_MEASURE_NOTHING ||
        !ask_without_graphs(device,
                            measure->by == MS_MEASURE_BY_NVML ? used_by_nvml : used_by_driver,
                            &now_bytes)) {
        return false;
    }
    *more_bytes = (int64_t)(now_bytes - measure->used_bytes);
    if (*more_bytes > (int64_t)MS_OVERHEAD_MOST_BYTES) {
        *more_bytes = (int64_t)MS_OVERHEAD_MOST_BYTES;
    }
    return true;
}

static int64_t end(const struct ms_measure *measure) MS_REQUIRES(measure->device->measuring)
{
    int64_t more_bytes = 0;
    if (ms_captures_running() || !compare(measure, &more_bytes)) {
        return 0;
    }
    return more_bytes - (int64_t)(charged_without_graphs(measure->device) - measure->charged_bytes);
}

int64_t ms_measure_end(const struct ms_measure *measure)
{
    if (!measure->device) {
        return 0;
    }
    const int cancellation = ms_cancel_hold();
    ms_lock_acquire(&measure->device->measuring);
    const int64_t taken = end(measure);
    ms_lock_release(&measure->device->measuring);
    ms_cancel_let(cancellation);
    return taken;
}

static void impose(struct ms_context *context, uint64_t bytes)
{
    atomic_fetch_add(&context->charged_bytes, bytes);
    ms_budget_impose(&context->device->budget, MS_OWNER_CONTEXT, bytes);
}

static void record(struct ms_context *context, enum ms_charge_reason reason, uint64_t bytes)
{
    ms_device_note_charge(context->device, true, MS_OWNER_CONTEXT, reason, 0, bytes, 0);
    ms_device_check_thresholds(context->device);
}

/* One thread at a time reads what is in use and charges it; otherwise two would see the same bytes
 * and both charge them. */
int64_t ms_measure_charge(const struct ms_measure *measure, struct ms_context *context,
                          enum ms_charge_reason reason)
{
    if (!measure->device) {
        return 0;
    }
    const int cancellation = ms_cancel_hold();
    ms_lock_acquire(&measure->device->measuring);
    int64_t taken = end(measure);
    if (taken > 0) {
        impose(context, (uint64_t)taken);
    }
    ms_lock_release(&measure->device->measuring);
    ms_cancel_let(cancellation);
    if (taken > 0) {
        record(context, reason, (uint64_t)taken);
    }
    return taken;
}

void ms_overhead_charge(struct ms_context *context, enum ms_charge_reason reason, uint64_t bytes)
{
    if (bytes != 0) {
        impose(context, bytes);
        record(context, reason, bytes);
    }
}

/* Never more than is charged: two threads that measure at once may both see what one gave back.
 * Returns how much it was. */
static uint64_t discharge(struct ms_context *context, enum ms_charge_reason reason, uint64_t bytes)
{
    uint64_t held = atomic_load(&context->charged_bytes);
    uint64_t back = 0;
    do {
        back = bytes < held ? bytes : held;
    } while (!atomic_compare_exchange_weak(&context->charged_bytes, &held, held - back));
    if (back != 0) {
        ms_device_note_charge(context->device, false, MS_OWNER_CONTEXT, reason, 0, back, 0);
        ms_budget_discharge(&context->device->budget, MS_OWNER_CONTEXT, back);
    }
    return back;
}

void ms_overhead_discharge(struct ms_context *context, enum ms_charge_reason reason, uint64_t bytes)
{
    if (discharge(context, reason, bytes) != 0) {
        ms_device_check_thresholds(context->device);
    }
}

/* --- corrections ------------------------------------------------------------------------------ */

/* The device chunks that the pool holds. Not its charge: that comes before the driver's call, and
 * includes pages of a framework that have no chunk yet. */
static uint64_t pool_bytes(const struct ms_device *device)
{
    struct ms_pool_stats stats = {0};
    if (device->pool) {
        ms_pool_stats(device->pool, &stats);
    }
    return stats.reserved_bytes;
}

/* The part of the contexts' charge that cannot be theirs: together with the pool's chunks it
 * exceeds what this process uses, or, if that is not known, what all processes use. 0 if chunks
 * came or went meanwhile. */
static uint64_t surplus_bytes(struct ms_device *device)
{
    const uint64_t contexts = atomic_load(&device->budget.by_owner_bytes[MS_OWNER_CONTEXT]);
    const uint64_t pool = pool_bytes(device);
    uint64_t used_bytes = 0;
    if (!(used_by_own(device, &used_bytes) && used_bytes != 0) &&
        !ms_device_used_bytes(device, &used_bytes)) {
        return 0;
    }
    const uint64_t surplus = ms_less(contexts + pool, used_bytes);
    if (pool_bytes(device) != pool) {
        return 0;
    }
    return surplus < contexts ? surplus : contexts;
}

/* The least of several samples, because a chunk that is being released counts a moment too long. */
static uint64_t lasting_surplus_bytes(struct ms_device *device)
{
    uint64_t surplus = surplus_bytes(device);
    for (int i = 1; i < SAMPLES && surplus != 0; i++) {
        ms_nap(SAMPLES_APART_NS);
        uint64_t now = surplus_bytes(device);
        surplus = now < surplus ? now : surplus;
    }
    return surplus;
}

/* Under the lock, or two threads would see the same surplus and both discharge it. */
static uint64_t discharge_surplus(struct ms_device *device)
{
    const int cancellation = ms_cancel_hold();
    ms_lock_acquire(&device->measuring);
    uint64_t back = 0;
    uint64_t left = lasting_surplus_bytes(device);
    for (struct ms_context *c = ms_context_first(); c && left != 0; c = c->next) {
        uint64_t part = c->device == device ? discharge(c, MS_CHARGE_CONTEXT, left) : 0;
        left -= part;
        back += part;
    }
    ms_lock_release(&device->measuring);
    ms_cancel_let(cancellation);
    return back;
}

bool ms_overhead_give_back(struct ms_device *device)
{
    const _Atomic uint64_t *charged = &device->budget.by_owner_bytes[MS_OWNER_CONTEXT];
    if (ms_captures_running()) {
        return false;
    }
    const uint64_t before = atomic_load(charged);
    const uint64_t back = discharge_surplus(device);
    if (back != 0) {
        ms_device_check_thresholds(device);
    }
    /* Another thread may have discharged the surplus while this one waited for it. */
    return back != 0 || atomic_load(charged) < before;
}

uint64_t ms_overhead_guess(struct ms_device *device)
{
    uint64_t known = atomic_load(&device->first_overhead_bytes);
    if (known != 0) {
        return known;
    }
    uint64_t used_bytes = 0;
    uint64_t charged = atomic_load(&device->budget.charged_bytes);
    if (used_by_own(device, &used_bytes) && used_bytes != 0) {
        return ms_less(used_bytes, charged);
    }
    if (!ms_device_used_bytes(device, &used_bytes)) {
        return 0;
    }
    uint64_t guess = ms_less(used_bytes, charged);
    return guess < GUESS_BYTES ? guess : GUESS_BYTES;
}

/* 0: not known yet. */
static uint64_t context_bytes(const struct ms_device *device)
{
    const uint64_t known = device->group != NULL ? ms_group_context_bytes(device->group)
                                                 : atomic_load(&device->first_overhead_bytes);
    return known != 0 ? known + device->granule_bytes : 0;
}

bool ms_overhead_expect_context(struct ms_device *device, uint64_t *kept_bytes)
{
    *kept_bytes = 0;
    if (device != NULL && device->group != NULL) {
        uint64_t used_bytes = 0;
        (void)ms_nvml_used_bytes(device->uuid, &used_bytes); /* asking loads NVML */
    }
    const uint64_t bytes = device != NULL ? context_bytes(device) : 0;
    if (bytes == 0) {
        return true;
    }
    if (!ms_device_set_aside(device, bytes)) {
        char text[24];
        MS_LOG_ONCE(MS_LOG_WARN,
                    "device %d: the cap has no room for another context (%s, as much as the one "
                    "before); it is refused as out of memory",
                    device->ordinal, ms_bytes_text(bytes, text, sizeof text));
        return false;
    }
    *kept_bytes = bytes;
    return true;
}

int64_t ms_overhead_of_context(const struct ms_device *device, const struct ms_measure *measure,
                               uint64_t kept_bytes)
{
    return kept_bytes != 0 && !measure->own_known && device->group != NULL
               ? (int64_t)ms_group_context_bytes(device->group)
               : ms_measure_end(measure);
}

void ms_overhead_context_made(struct ms_device *device, uint64_t kept_bytes, int64_t taken_bytes)
{
    if (kept_bytes > 0) {
        ms_budget_release_earmark(&device->budget, kept_bytes);
    }
    if (device != NULL && device->group != NULL && taken_bytes > 0) {
        ms_group_tell_context(device->group, (uint64_t)taken_bytes);
    }
}
