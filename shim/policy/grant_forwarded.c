/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the driver serves. It is charged before the call and corrected after it; the grant is
 * in the ledger, and events record when it was live. */
#include "shim/policy/grant.h"

#include "allocator/base/arithmetic.h"
#include "shim/device/addresses/pages.h"
#include "shim/device/mempools.h"
#include "shim/driver/hook.h"
#include "shim/policy/host_blocks.h"
#include "shim/policy/oom.h"
#include "shim/process/session.h"
#include "shim/sites/site.h"

static _Atomic uint64_t last_forwarded_id = MS_FIRST_FORWARDED_ID;

/* The block in which this thread's last tensor was allocated; valid until a block is freed. */
static _Atomic uint64_t forwarded_frees;
static _Thread_local struct {
    CUdeviceptr_v2 base;
    size_t bytes;
    uint64_t frees;
} last_arena __attribute__((tls_model("initial-exec")));

static void emit_block(struct ms_device *device, enum ms_event_kind kind,
                       const struct ms_grant *grant)
{
    if (kind == MS_EVENT_BLOCK_ALLOC) {
        atomic_fetch_add(&device->forwarded_live_bytes, grant->bytes);
    } else if (kind == MS_EVENT_BLOCK_ARENA || !grant->arena) {
        atomic_fetch_sub(&device->forwarded_live_bytes, grant->bytes);
    }
    struct ms_event event = {
        .kind = (uint8_t)kind,
        .device = device->ordinal,
        .owner = MS_OWNER_FORWARDED,
        .site = grant->site,
        .id = grant->block_id,
        .addr = grant->name,
        .bytes = grant->bytes,
    };
    if (kind == MS_EVENT_BLOCK_ALLOC) {
        event.aux = grant->extent_bytes ? grant->extent_bytes : grant->bytes;
    } else if (kind == MS_EVENT_BLOCK_FREE) {
        event.aux = grant->arena;
    }
    ms_session_emit(&event);
}

static uint64_t whole_slabs(uint64_t bytes)
{
    return bytes > UINT64_MAX - MS_DRIVER_SLAB_BYTES
               ? UINT64_MAX
               : (bytes + MS_DRIVER_SLAB_BYTES - 1) / MS_DRIVER_SLAB_BYTES * MS_DRIVER_SLAB_BYTES;
}

/* Slabs for small allocations of unknown address: their sum in whole slabs, and one more, because
 * frees leave gaps. */
static uint64_t small_slabs(uint64_t sum_bytes)
{
    return sum_bytes ? whole_slabs(sum_bytes) + MS_DRIVER_SLAB_BYTES : 0;
}

static uint64_t small_came(struct ms_device *device, uint64_t bytes)
{
    uint64_t sum = atomic_fetch_add(&device->small_bytes, bytes);
    return small_slabs(sum + bytes) - small_slabs(sum);
}

static uint64_t small_went(struct ms_device *device, uint64_t bytes)
{
    uint64_t sum = atomic_fetch_sub(&device->small_bytes, bytes);
    return small_slabs(sum) - small_slabs(sum - bytes);
}

static void free_memory(uint64_t name)
{
    (void)MS_REAL(cuMemFree_v2)(name);
}

/* Managed memory may be larger than the device. */
static bool cannot_be(const struct ms_forward *forward)
{
    return forward->requested_bytes > forward->device->total_bytes &&
           forward->reason != MS_CHARGE_MANAGED;
}

/* Which slabs have room only the driver knows. Under a cap it must not be asked: it may take a slab
 * more than that allows. */
static bool may_share_slab(const struct ms_forward *forward)
{
    return forward->taking == MS_TAKING_SLABS && forward->requested_bytes < MS_DRIVER_SLAB_BYTES &&
           ms_device_is_the_cap(forward->device);
}

CUresult ms_forward_begin(struct ms_forward *forward, struct ms_context *context,
                          enum ms_charge_reason reason, enum ms_taking taking,
                          uint64_t requested_bytes, bool sound)
{
    struct ms_device *device = context->device;
    *forward = (struct ms_forward){
        .device = device,
        .context = context,
        .requested_bytes = requested_bytes,
        .charged_bytes = taking == MS_TAKING_SMALL ? small_came(device, requested_bytes)
                                                   : whole_slabs(requested_bytes),
        .site = ms_site_capture(requested_bytes),
        .reason = reason,
        .taking = taking,
        .undo = free_memory,
    };
    const bool hopeless = !sound || cannot_be(forward);
    struct ms_oom_tries tries = {0};
    while (forward->charged_bytes != 0 &&
           !ms_device_charge(device, MS_OWNER_FORWARDED, forward->charged_bytes, true)) {
        if (!hopeless && may_share_slab(forward)) {
            forward->sharing = true;
            forward->charged_bytes = 0;
            return CUDA_SUCCESS;
        }
        if (hopeless || ms_oom_refuses(device, requested_bytes, forward->charged_bytes, &tries)) {
            if (taking == MS_TAKING_SMALL) {
                (void)small_went(device, requested_bytes);
            }
            forward->hopeless = hopeless;
            return hopeless ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return CUDA_SUCCESS;
}

bool ms_forward_retry(struct ms_forward *forward, CUresult result)
{
    if (result != CUDA_ERROR_OUT_OF_MEMORY || forward->retried || forward->hopeless) {
        return false;
    }
    forward->retried = true;
    return ms_device_make_room(forward->device, ms_options()->wait_ns);
}

static void correct(struct ms_forward *forward, uint64_t taken_bytes)
{
    struct ms_device *device = forward->device;
    if (taken_bytes > forward->charged_bytes) {
        ms_budget_impose(&device->budget, MS_OWNER_FORWARDED, taken_bytes - forward->charged_bytes);
    } else if (taken_bytes < forward->charged_bytes) {
        ms_budget_discharge(&device->budget, MS_OWNER_FORWARDED,
                            forward->charged_bytes - taken_bytes);
    }
    forward->charged_bytes = taken_bytes;
}

static CUresult hopeless_end(struct ms_forward *forward, CUresult result, uint64_t name)
{
    if (result == CUDA_SUCCESS) {
        forward->undo(name);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result == CUDA_ERROR_OUT_OF_MEMORY
               ? ms_oom_refuse(forward->device, forward->requested_bytes)
               : result;
}

static CUresult forward_failed(struct ms_forward *forward, CUresult result)
{
    if (forward->taking == MS_TAKING_SMALL) {
        (void)small_went(forward->device, forward->requested_bytes);
    }
    correct(forward, 0);
    return result == CUDA_ERROR_OUT_OF_MEMORY
               ? ms_oom_refuse(forward->device, forward->requested_bytes)
               : result;
}

/* Charges a sharing call's memory for the slabs that it touches first. False if there is no room
 * for them; it is freed then. A slab that another allocation joined meanwhile stays. */
static bool charge_shared(struct ms_forward *forward, uint64_t name, uint64_t extent_bytes)
{
    const uint64_t bytes = ms_pages_touch(name, extent_bytes, forward->site);
    if (bytes != 0 && !ms_device_charge(forward->device, MS_OWNER_FORWARDED, bytes, true)) {
        const struct ms_pages_left left = ms_pages_leave(name, extent_bytes, forward->site);
        const uint64_t gone = left.own_bytes + left.others * MS_DRIVER_SLAB_BYTES;
        ms_budget_impose(&forward->device->budget, MS_OWNER_FORWARDED, ms_less(bytes, gone));
        forward->undo(name);
        return false;
    }
    forward->charged_bytes = bytes;
    return true;
}

/* The charge for slabs that many small allocations share is recorded without address and site: the
 * allocation that needed a new slab is seldom the last one in it. */
static void note_forwarded(const struct ms_grant *grant, bool more, uint64_t bytes)
{
    const bool shared = grant->taking == MS_TAKING_SMALL;
    ms_device_note_charge(ms_device_get(grant->device), more, MS_OWNER_FORWARDED, grant->reason,
                          shared ? 0 : grant->name, bytes, shared ? 0 : grant->site);
}

CUresult ms_forward_end(struct ms_forward *forward, CUresult result, enum ms_space space,
                        uint64_t name, uint64_t extent_bytes)
{
    struct ms_device *device = forward->device;
    if (forward->hopeless) {
        return hopeless_end(forward, result, name);
    }
    if (result != CUDA_SUCCESS) {
        return forward_failed(forward, result);
    }
    extent_bytes = extent_bytes ? extent_bytes : forward->requested_bytes;
    if (forward->sharing && !charge_shared(forward, name, extent_bytes)) {
        return ms_oom_refuse(device, forward->requested_bytes);
    }
    struct ms_grant grant = {
        .name = name,
        .bytes = forward->requested_bytes,
        .extent_bytes = extent_bytes,
        .block_id =
            ms_charge_is_block(forward->reason) ? atomic_fetch_add(&last_forwarded_id, 1) : 0,
        .holder = forward->context,
        .site = forward->site,
        .space = (uint8_t)space,
        .kind = MS_GRANT_FORWARDED,
        .device = device->ordinal,
        .reason = (uint8_t)forward->reason,
        .taking = (uint8_t)forward->taking,
    };
    struct ms_grant displaced = {0};
    if (!ms_ledger_put(&grant, &displaced)) {
        grant.block_id = 0; /* it stays charged: too much is safer than too little */
    }
    if (displaced.name != 0) {
        ms_release_dead(&displaced);
    }
    if (forward->taking == MS_TAKING_SLABS && !forward->sharing) {
        correct(forward, ms_pages_touch(name, grant.extent_bytes, grant.site));
    } else if (forward->taking == MS_TAKING_WHOLE) {
        correct(forward, whole_slabs(grant.extent_bytes));
    }
    note_forwarded(&grant, true, forward->charged_bytes);
    if (grant.block_id != 0) {
        emit_block(device, MS_EVENT_BLOCK_ALLOC, &grant);
    }
    return CUDA_SUCCESS;
}

CUresult ms_forward_alloc(struct ms_context *context, enum ms_charge_reason reason,
                          CUdeviceptr_v2 *dptr, size_t bytes)
{
    struct ms_forward forward;
    CUresult result = ms_forward_begin(&forward, context, reason, MS_TAKING_SLABS, bytes, true);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    do {
        result = MS_REAL(cuMemAlloc_v2)(dptr, bytes);
    } while (ms_forward_retry(&forward, result));
    return ms_forward_end(&forward, result, MS_SPACE_DEVICE, result == CUDA_SUCCESS ? *dptr : 0, 0);
}

/* Records the slabs that this grant gave back, and returns their bytes. A slab that was charged to
 * a neighbour's site is recorded for that site. */
static uint64_t slabs_given_back(struct ms_device *device, const struct ms_grant *grant)
{
    const struct ms_pages_left left = ms_pages_leave(grant->name, grant->extent_bytes, grant->site);
    for (uint32_t i = 0; i < left.others; i++) {
        ms_device_note_charge(device, false, MS_OWNER_FORWARDED, grant->reason, grant->name,
                              MS_DRIVER_SLAB_BYTES, left.other_sites[i]);
    }
    note_forwarded(grant, false, left.own_bytes);
    return left.own_bytes + left.others * MS_DRIVER_SLAB_BYTES;
}

/* Records what the driver got back with this grant, and returns how much it is. */
static uint64_t given_back(struct ms_device *device, const struct ms_grant *grant)
{
    if (grant->taking == MS_TAKING_SLABS) {
        return slabs_given_back(device, grant);
    }
    const uint64_t back = grant->taking == MS_TAKING_SMALL ? small_went(device, grant->extent_bytes)
                                                           : whole_slabs(grant->extent_bytes);
    note_forwarded(grant, false, back);
    return back;
}

void ms_note_outside(struct ms_device *device, struct ms_mempool *pool, CUdeviceptr_v2 addr,
                     uint64_t bytes, uint32_t site)
{
    struct ms_grant grant = {
        .name = addr,
        .bytes = bytes,
        .block_id = atomic_fetch_add(&last_forwarded_id, 1),
        .holder = pool,
        .site = site,
        .space = MS_SPACE_DEVICE,
        .kind = MS_GRANT_OUTSIDE,
        .device = device->ordinal,
        .reason = MS_CHARGE_DRIVER_POOL,
    };
    struct ms_grant displaced = {0};
    if (!ms_ledger_put(&grant, &displaced)) {
        return; /* only the report lacks it: the pool is charged as a whole */
    }
    atomic_fetch_add(&pool->outside_blocks, 1);
    if (displaced.name != 0) {
        ms_release_dead(&displaced);
    }
    emit_block(device, MS_EVENT_BLOCK_ALLOC, &grant);
}

void ms_forwarded_leaves(const struct ms_grant *grant)
{
    if (grant->block_id != 0) {
        struct ms_device *device = ms_device_get(grant->device);
        atomic_fetch_add(&forwarded_frees, 1);
        ms_arenas_block_gone(device->arenas, grant->name, grant->bytes);
        emit_block(device, MS_EVENT_BLOCK_FREE, grant);
    } else if (ms_host_block_is(grant)) {
        ms_grant_emit_host(MS_EVENT_HOST_FREE, grant);
    }
}

static void give_back(const struct ms_grant *grant)
{
    struct ms_device *device = ms_device_get(grant->device);
    uint64_t back = grant->extent_bytes && !ms_host_block_is(grant) ? given_back(device, grant) : 0;
    if (back != 0) {
        ms_device_discharge(device, MS_OWNER_FORWARDED, back);
    }
    if (ms_host_block_is(grant)) {
        ms_host_block_gone(grant);
    }
    if (grant->kind == MS_GRANT_OUTSIDE) {
        struct ms_mempool *pool = grant->holder;
        atomic_fetch_sub(&pool->outside_blocks, 1);
        ms_mempool_correct(pool, 0);
    }
}

void ms_forwarded_arena(CUdeviceptr_v2 addr)
{
    uint64_t now = atomic_load(&forwarded_frees);
    if (last_arena.frees == now && addr - last_arena.base < last_arena.bytes) {
        return;
    }
    CUdeviceptr_v2 base = 0;
    size_t bytes = 0;
    struct ms_grant grant;
    if (MS_REAL(cuMemGetAddressRange_v2)(&base, &bytes, addr) != CUDA_SUCCESS) {
        return;
    }
    if (ms_ledger_mark_arena(MS_SPACE_DEVICE, base, &grant) && grant.block_id != 0) {
        emit_block(ms_device_get(grant.device), MS_EVENT_BLOCK_ARENA, &grant);
    }
    last_arena.base = base;
    last_arena.bytes = bytes;
    last_arena.frees = now;
}

void ms_forwarded_freed(const struct ms_grant *grant, CUresult result)
{
    struct ms_grant displaced;
    struct ms_grant again = *grant;
    if (result == CUDA_SUCCESS) {
        give_back(grant);
        return;
    }
    again.arena = false;
    if (again.block_id != 0) {
        again.block_id = atomic_fetch_add(&last_forwarded_id, 1);
        emit_block(ms_device_get(again.device), MS_EVENT_BLOCK_ALLOC, &again);
    } else if (ms_host_block_is(&again)) {
        ms_grant_emit_host(MS_EVENT_HOST_ALLOC, &again);
    }
    (void)ms_ledger_put(&again, &displaced);
}

void ms_release_dead(const struct ms_grant *grant)
{
    switch (grant->kind) {
    case MS_GRANT_FORWARDED:
    case MS_GRANT_OUTSIDE:
        ms_forwarded_leaves(grant);
        give_back(grant);
        break;
    case MS_GRANT_HOST:
        ms_grant_emit_host(MS_EVENT_HOST_FREE, grant);
        break;
    default:
        break; /* overhead goes back with all other charges of its context */
    }
}
