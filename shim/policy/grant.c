/* SPDX-License-Identifier: Apache-2.0 */
/* Grants and releases blocks of the pool (grant_forwarded.c: memory that the driver serves). The
 * order is always budget, driver or pool, ledger, event, and the reverse for a release. The ledger
 * does not hold blocks of the pool, because the pool finds them by address as fast. */
#include "shim/policy/grant.h"

#include "shim/device/capture.h"
#include "shim/device/group/device_group.h"
#include "shim/device/mempools.h"
#include "shim/device/stream.h"
#include "shim/driver/driver.h"
#include "shim/policy/host_blocks.h"
#include "shim/policy/oom.h"
#include "shim/policy/spill.h"
#include "shim/policy/status.h"
#include "shim/process/session.h"
#include "shim/sharing/exports.h"
#include "shim/sites/site.h"

#define ATTEMPTS 4 /* for a request that was refused although the numbers say that it fits */

void ms_grant_emit_host(enum ms_event_kind kind, const struct ms_grant *grant)
{
    struct ms_event event = {
        .kind = (uint8_t)kind,
        .device = grant->device,
        .site = grant->site,
        .addr = grant->name,
        .bytes = grant->bytes,
    };
    ms_session_emit(&event);
}

void ms_note_given_back(uint8_t device, CUdeviceptr_v2 addr, uint64_t bytes)
{
    struct ms_event event = {
        .kind = MS_EVENT_GIVEN_BACK,
        .device = device,
        .site = ms_site_capture(bytes),
        .addr = addr,
        .bytes = bytes,
    };
    if (event.site != 0) {
        ms_session_emit(&event);
    }
}

/* --- blocks of the pool ----------------------------------------------------------------------- */

/* Whether the refused request fits by now: another thread may have held memory for a moment and
 * given it back. Then it is tried again. */
static bool fits_now(struct ms_device *device, uint64_t bytes)
{
    struct ms_pool_stats stats;
    ms_pool_stats(device->pool, &stats);
    return bytes <= ms_budget_free_bytes(&device->budget) + stats.free_bytes - stats.pending_bytes;
}

static bool wants_no_waits(const struct ms_holder *holder)
{
    return holder->kind == MS_HOLDER_MEMPOOL &&
           ((const struct ms_mempool *)holder)->no_stream_waits;
}

/* Checks the thresholds, and the memory on the host once there is some (then every check comes
 * here). */
static void check_pressure(struct ms_device *device)
{
    ms_device_cross_threshold(device);
    if (atomic_load_explicit(&device->host_made, memory_order_relaxed)) {
        ms_spill_attend(device);
    }
}

/* What can be had without waiting, also where the driver's pools give back what they keep. */
static ms_status_t climb_quickly(struct ms_device *device, const struct ms_request *quick,
                                 struct ms_block_info *block)
{
    ms_status_t status = ms_pool_alloc(device->pool, quick, block);
    if (status == MS_ERR_NO_MEMORY && ms_device_give_back(device)) {
        status = ms_pool_alloc(device->pool, quick, block);
    }
    return status;
}

struct attempt {
    struct ms_device *device;
    const struct ms_request *request;
    struct ms_block_info *block;
};

static ms_status_t attempt(void *ctx, bool may_wait)
{
    const struct attempt *of = ctx;
    struct ms_request request = *of->request;
    request.may_wait = may_wait;
    return ms_pool_alloc(of->device->pool, &request, of->block);
}

static ms_status_t climb_in_group(struct ms_device *device, const struct ms_request *request,
                                  struct ms_block_info *block)
{
    struct attempt ctx = {.device = device, .request = request, .block = block};
    const struct ms_group_climb climb = {
        .attempt = attempt, .ctx = &ctx, .bytes = request->bytes, .may_wait = request->may_wait};
    return ms_device_group_climb(device, &climb);
}

/* In steps only where somebody else may have to give first: else the pool climbs once. */
static ms_status_t climb(struct ms_device *device, const struct ms_request *request,
                         struct ms_block_info *block)
{
    const bool in_group = device->group != NULL;
    if (__builtin_expect(
            in_group || atomic_load_explicit(&device->driver_pools, memory_order_relaxed), 0)) {
        struct ms_request quick = *request;
        quick.may_wait = false;
        const ms_status_t status = climb_quickly(device, &quick, block);
        if (status == MS_ERR_NO_MEMORY && in_group) {
            return climb_in_group(device, request, block);
        }
        if (status != MS_ERR_NO_MEMORY || !request->may_wait) {
            return status;
        }
    }
    return ms_pool_alloc(device->pool, request, block);
}

static ms_status_t climb_again(struct ms_device *device, const struct ms_request *request,
                               struct ms_block_info *block)
{
    ms_status_t status = MS_ERR_NO_MEMORY;
    int attempts = ATTEMPTS;
    if (request->bytes > atomic_load_explicit(&device->budget.cap_bytes, memory_order_relaxed)) {
        return status;
    }
    do {
        status = climb(device, request, block);
    } while (status == MS_ERR_NO_MEMORY && --attempts > 0 &&
             (fits_now(device, request->bytes) || ms_spill_others_give(device, request->bytes) ||
              ms_device_give_back(device)));
    return status;
}

CUresult ms_grant_block(struct ms_device *device, struct ms_holder *holder, ms_stream_t stream,
                        uint64_t bytes, CUdeviceptr_v2 *out)
{
    struct ms_request request = {
        .bytes = bytes,
        .stream = stream,
        .holder = holder,
        .site = ms_site_capture(bytes),
        .may_wait = !ms_captures_running(),
        .no_stream_waits = wants_no_waits(holder),
    };
    struct ms_block_info block;
    struct ms_oom_tries tries = {0};
    ms_status_t status;
    ms_exports_reap();
    do {
        status = climb_again(device, &request, &block);
        if (ms_device_crosses_threshold(device)) {
            check_pressure(device);
        }
        ms_status_check();
        if (status == MS_ERR_NO_MEMORY && stream == MS_STREAM_DEVICE &&
            ms_host_block_alloc(device, bytes, request.site, out)) {
            return CUDA_SUCCESS;
        }
    } while (status == MS_ERR_NO_MEMORY && !ms_oom_refuses(device, bytes, bytes, &tries));
    if (status != MS_OK) {
        return ms_result_from(status);
    }
    *out = block.addr;
    ms_oom_over(device);
    return CUDA_SUCCESS;
}

static bool begins_in(struct ms_device *device, CUdeviceptr_v2 addr, struct ms_block_info *block)
{
    return device && device->pool && ms_pool_find(device->pool, addr, block) == MS_OK &&
           block->addr == addr;
}

bool ms_find_block(struct ms_device *likely, CUdeviceptr_v2 addr, struct ms_device **device,
                   struct ms_block_info *block)
{
    *device = likely;
    if (__builtin_expect(begins_in(likely, addr, block), 1)) {
        return true;
    }
    *device = ms_device_holding(addr);
    bool found = begins_in(*device, addr, block);
    for (int d = 0; !*device && !found && d < MS_DEVICES_MAX; d++) {
        struct ms_device *other = ms_device_get(d);
        found = begins_in(other, addr, block);
        *device = found ? other : NULL;
    }
    return found;
}

static bool release_from(struct ms_device *device, CUdeviceptr_v2 addr, ms_stream_t stream)
{
    if (!device || !device->pool) {
        return false;
    }
    ms_exports_reap();
    const enum ms_exports_free when = ms_exports_freed(device, addr);
    if (when != MS_EXPORTS_NOW) {
        return when == MS_EXPORTS_LATER;
    }
    if (ms_pool_free(device->pool, addr, stream) != MS_OK) {
        return false;
    }
    ms_device_check_thresholds(device);
    ms_device_check_emergency(device);
    return true;
}

/* Nearly every free finds its block at the first device: flatten inlines that search. */
__attribute__((flatten)) bool ms_release_block(struct ms_device *likely, CUdeviceptr_v2 addr,
                                               ms_stream_t stream)
{
    bool released = release_from(likely, addr, stream);
    for (int d = 0; !released && d < MS_DEVICES_MAX; d++) {
        struct ms_device *device = ms_device_get(d);
        released = device != likely && release_from(device, addr, stream);
    }
    return released;
}
