/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: looked up without a lock, made once. */
#include "shim/device/device.h"
#include "allocator/base/units.h"
#include "shim/driver/gate.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/arithmetic.h"
#include "allocator/base/cancel.h"
#include "shim/device/addresses/ledger.h"
#include "shim/device/addresses/reach.h"
#include "shim/device/capture.h"
#include "shim/device/context.h"
#include "shim/device/graph_memory.h"
#include "shim/device/host_access.h"
#include "shim/device/mempools.h"
#include "shim/device/overhead.h"
#include "shim/device/sample.h"
#include "shim/device/stream.h"
#include "shim/driver/driver.h"
#include "shim/driver/nvml.h"
#include "shim/process/fork.h"
#include "shim/process/hot.h"
#include "shim/process/log.h"
#include "shim/process/session.h"
#include "shim/sites/site.h"
#include "shim/tables/identity.h"

MS_HOT_DATA struct ms_device *_Atomic ms_devices[MS_DEVICES_MAX];
static _Atomic int used;

/* Held by the one thread that makes the device. A lock instead would be held while the driver is
 * asked and the trace is opened. */
static atomic_flag making[MS_DEVICES_MAX];

int ms_devices_used(void)
{
    return atomic_load_explicit(&used, memory_order_relaxed);
}

struct ms_device *ms_device_current(void)
{
    struct ms_context *context = ms_context_current();
    return context ? context->device : NULL;
}

uint64_t ms_device_cap_bytes(int ordinal, uint64_t total_bytes)
{
    uint64_t fraction_ppb = 0;
    return ms_options_cap_bytes(ms_options(), ordinal, total_bytes, &fraction_ppb);
}

static const struct ms_device_policy *_Atomic policy_set;

void ms_device_set_policy(const struct ms_device_policy *policy)
{
    atomic_store_explicit(&policy_set, policy, memory_order_release);
}

const struct ms_device_policy *ms_device_policy(void)
{
    return atomic_load_explicit(&policy_set, memory_order_acquire);
}

static CUresult describe(struct ms_device *device)
{
    size_t total = 0;
    CUresult known = MS_REAL(cuDeviceTotalMem_v2)(&total, device->handle);
    if (known != CUDA_SUCCESS) {
        return known;
    }
    device->total_bytes = total;
    if (ms_driver()->cuDeviceGetName(device->name, sizeof device->name, device->handle) !=
        CUDA_SUCCESS) {
        device->name[0] = '\0';
    }
    CUuuid uuid = {{0}};
    CUresult result = ms_driver()->cuDeviceGetUuid_v2
                          ? ms_driver()->cuDeviceGetUuid_v2(&uuid, device->handle)
                          : ms_driver()->cuDeviceGetUuid(&uuid, device->handle);
    if (result == CUDA_SUCCESS) {
        memcpy(device->uuid, uuid.bytes, sizeof device->uuid);
    }
    return CUDA_SUCCESS;
}

/* Read once at the start, as the driver and PyTorch do. */
static void find_limits(struct ms_device *device)
{
    if (!ms_driver()->cuDeviceGetPCIBusId ||
        ms_driver()->cuDeviceGetPCIBusId(device->pci, sizeof device->pci, device->handle) !=
            CUDA_SUCCESS) {
        device->pci[0] = '\0';
    }
    device->mps_limit = ms_limit_of_mps(ms_environment(environ, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
                                        device->ordinal);
    device->torch_limit = ms_limit_of_torch(environ, atomic_load(&device->budget.cap_bytes));
}

/* May start another process that makes a context on the device. False: a group of processes has no
 * room for that context. */
static bool find_host_access(struct ms_device *device)
{
    uint64_t kept_bytes = 0;
    if (device->granule_bytes == 0) {
        return true;
    }
    if (!ms_overhead_expect_context(device, &kept_bytes)) {
        return false;
    }
    device->host_limit_bytes = ms_host_access_open(device);
    ms_overhead_context_made(device, kept_bytes, 0);
    return true;
}

static CUresult furnish(struct ms_device *device)
{
    const struct ms_options *options = ms_options();
    uint64_t cap_bytes =
        ms_options_cap_bytes(options, device->ordinal, device->total_bytes, &device->fraction_ppb);
    CUresult result = ms_device_policy()->operations(device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    ms_budget_init(&device->budget, cap_bytes);
    ms_device_policy()->group_join(device);
    find_limits(device);
    atomic_store(&device->rise_bytes, 1); /* so that the first sample is taken */
    atomic_store(&device->sample_bytes, 1);
    ms_device_policy()->device_used();
    if (options->pool) {
        if (!find_host_access(device)) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        struct ms_pool_config config = {
            .device = device->ordinal,
            .ops = &device->ops,
            .budget = &device->budget,
            .sink = ms_session_sink(),
            .wait_limit_ns = options->wait_ns,
            .wait_most_ns = ms_options_wait_most_ns(options),
            .views = options->views,
            .page_bytes = (uint64_t)sysconf(_SC_PAGESIZE),
        };
        ms_device_policy()->configure(device, &config);
        if (ms_pool_create(&config, &device->pool) != MS_OK) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (ms_arenas_create(device->ordinal, device->pool, ms_session_sink(), &device->arenas) !=
        MS_OK) {
        if (device->pool) {
            ms_pool_destroy(device->pool, true);
        }
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

static CUresult make(int ordinal, struct ms_device **out)
{
    struct ms_device *device = calloc(1, sizeof *device);
    *out = NULL;
    if (!device) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    device->ordinal = (uint8_t)ordinal;
    device->handle = ordinal;
    ms_lock_init(&device->making_primary, MS_RANK_MAKING_PRIMARY);
    ms_lock_init(&device->measuring, MS_RANK_MEASURING);
    atomic_store(&device->graph_turn, 1);
    atomic_store(&device->rdma_flag, -1);
    atomic_store(&device->share_flag, -1);
    atomic_store(&device->decompress_flag, -1);
    CUresult result = describe(device);
    if (result == CUDA_SUCCESS) {
        result = furnish(device);
    }
    if (result != CUDA_SUCCESS) {
        ms_device_policy()->group_leave(device);
        free(device);
        return result;
    }
    *out = device;
    return CUDA_SUCCESS;
}

/* The CUDA version is what this driver supports: 1000 x major + 10 x minor (cuDriverGetVersion). */
static void note_versions(void)
{
    char version[64];
    int cuda = 0;
    if (ms_nvml_driver_version(version, sizeof version)) {
        ms_session_version("driver", version);
    }
    if (ms_driver()->cuDriverGetVersion(&cuda) == CUDA_SUCCESS) {
        snprintf(version, sizeof version, "%d.%d", cuda / 1000, cuda % 1000 / 10);
        ms_session_version("cuda", version);
    }
}

/* Calls `act` for the locks of the devices' objects, around a fork. */
static void locks_of_devices(enum ms_lock_rank rank, void (*act)(ms_lock_t *lock))
{
    if (rank == MS_RANK_LEDGER) {
        ms_ledger_locks(act);
    }
    for (int d = 0; d < MS_DEVICES_MAX; d++) {
        struct ms_device *device = ms_device_get(d);
        if (device && rank == MS_RANK_ARENAS) {
            ms_arenas_locks(device->arenas, act);
        }
        if (device && device->pool) {
            ms_pool_locks(device->pool, rank, act);
        }
    }
}

static struct ms_fork_part at_fork = {.locks = locks_of_devices, .in_child = ms_gate_fork_child};
static bool at_fork_joined; /* guarded by OPENING */

static CUresult make_known(int ordinal, struct ms_device **out)
{
    const int error = errno;
    const int cancellation = ms_cancel_hold();
    struct ms_device *device = NULL;
    CUresult result = make(ordinal, &device);
    if (device) {
        ms_device_policy()->group_attend(device);
        ms_sites_prepare();
        ms_session_device(ordinal, device->name, device->uuid, device->total_bytes,
                          atomic_load(&device->budget.cap_bytes));
        if (atomic_fetch_add(&used, 1) == 0) {
            note_versions();
        }
    }
    ms_lock_acquire(MS_LOCK(OPENING)); /* so that no fork is under way */
    if (device && !at_fork_joined) {
        at_fork_joined = true;
        ms_fork_join(&at_fork);
    }
    atomic_store_explicit(&ms_devices[ordinal], device, memory_order_release);
    ms_lock_release(MS_LOCK(OPENING));
    ms_cancel_let(cancellation);
    errno = error;
    *out = device;
    return result;
}

CUresult ms_device_use(int ordinal, struct ms_device **out)
{
    *out = NULL;
    if (ordinal < 0 || ordinal >= MS_DEVICES_MAX) {
        MS_LOG_ONCE(MS_LOG_WARN,
                    "device %d is beyond the %d that memshim supports; memshim leaves it alone",
                    ordinal, MS_DEVICES_MAX);
        return CUDA_SUCCESS;
    }
    CUresult result = CUDA_SUCCESS;
    struct ms_device *device = ms_device_get(ordinal);
    if (!device) {
        while (atomic_flag_test_and_set(&making[ordinal])) {
            sched_yield();
        }
        device = ms_device_get(ordinal);
        if (!device) {
            result = make_known(ordinal, &device);
        }
        atomic_flag_clear(&making[ordinal]);
    }
    *out = device;
    return result;
}

/* --- addresses of the pool -------------------------------------------------------------------- */

void ms_device_range_reserved(struct ms_device *device, ms_addr_t addr, uint64_t bytes)
{
    ms_reach_add(addr, bytes);
    for (uint32_t i = 0; i < MS_RANGES_MAX; i++) {
        uint64_t none = 0;
        if (atomic_load(&device->ranges[i].addr) != 0) {
            continue;
        }
        /* The size first: a reader that sees the new address must not see an older size. Two
         * threads never reserve at once (the pool's growth lock). */
        atomic_store(&device->ranges[i].bytes, bytes);
        if (atomic_compare_exchange_strong(&device->ranges[i].addr, &none, addr)) {
            uint32_t count = atomic_load(&device->range_count);
            while (count < i + 1 &&
                   !atomic_compare_exchange_weak(&device->range_count, &count, i + 1)) {
            }
            return;
        }
    }
}

uint64_t ms_device_range_freed(struct ms_device *device, ms_addr_t addr)
{
    uint32_t count = atomic_load(&device->range_count);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t found = addr;
        uint64_t bytes = atomic_load(&device->ranges[i].bytes);
        if (atomic_compare_exchange_strong(&device->ranges[i].addr, &found, 0)) {
            return bytes;
        }
    }
    return 0;
}

bool ms_device_holds(const struct ms_device *device, ms_addr_t addr)
{
    uint32_t count = atomic_load_explicit(&device->range_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        ms_addr_t start = atomic_load_explicit(&device->ranges[i].addr, memory_order_acquire);
        if (start != 0 && addr >= start &&
            addr - start < atomic_load_explicit(&device->ranges[i].bytes, memory_order_relaxed)) {
            return true;
        }
    }
    return false;
}

struct ms_device *ms_device_holding(ms_addr_t addr)
{
    for (int d = 0; d < MS_DEVICES_MAX; d++) {
        struct ms_device *device = ms_device_get(d);
        if (device && ms_device_holds(device, addr)) {
            return device;
        }
    }
    return NULL;
}

uint64_t ms_device_replaceable_bytes(const struct ms_device *device,
                                     const struct ms_pool_stats *stats)
{
    return ms_less(device->host_limit_bytes, stats->host_reserve_bytes + stats->host_backed_bytes);
}

uint64_t ms_device_takeable_bytes(const struct ms_device *device, const struct ms_pool_stats *stats)
{
    return ms_least(ms_pool_takeable_bytes(device->pool),
                    ms_device_replaceable_bytes(device, stats));
}

/* --- charging --------------------------------------------------------------------------------- */

bool ms_device_give_back(struct ms_device *device)
{
    const uint64_t graphs_before = atomic_load(&device->graph_bytes);
    ms_graph_memory_correct(device);
    const bool trimmed =
        ms_mempools_trim(device) != 0 || atomic_load(&device->graph_bytes) < graphs_before;
    return ms_overhead_give_back(device) || trimmed;
}

bool ms_device_make_room(struct ms_device *device, uint64_t wait_ns)
{
    uint64_t released = ms_mempools_trim(device);
    if (!device->pool) {
        return released != 0;
    }
    released += ms_pool_trim(device->pool, 0);
    struct ms_pool_stats stats;
    ms_pool_stats(device->pool, &stats);
    if (stats.pending_bytes != 0 && wait_ns != 0 && !ms_captures_running()) {
        ms_fence_t fence = 0;
        if (device->ops.fence_take(device->ops.ctx, MS_STREAM_DEVICE, &fence) == MS_OK) {
            (void)device->ops.fence_wait(device->ops.ctx, fence, wait_ns);
            device->ops.fence_release(device->ops.ctx, fence);
        }
        released += ms_pool_trim(device->pool, 0);
    }
    return released != 0;
}

struct charge {
    struct ms_device *device;
    uint64_t bytes;
    enum ms_owner owner;
    bool aside; /* earmarked, and charged to nobody */
};

static bool take(const struct charge *of)
{
    struct ms_budget *budget = &of->device->budget;
    return of->aside ? ms_budget_earmark(budget, of->bytes)
                     : ms_budget_charge(budget, of->owner, of->bytes);
}

/* The pool gives back only as much as this asks for. What it keeps, it need not create again. */
static bool room_and_take(const struct charge *of, bool may_wait)
{
    if (of->device->pool) {
        (void)ms_pool_make_room(of->device->pool, of->bytes, may_wait);
    }
    return take(of);
}

static ms_status_t attempt(void *ctx, bool may_wait)
{
    return room_and_take(ctx, may_wait) ? MS_OK : MS_ERR_NO_MEMORY;
}

static bool take_in_group(struct charge *of, bool may_wait)
{
    const struct ms_group_climb climb = {
        .attempt = attempt, .ctx = of, .bytes = of->bytes, .may_wait = may_wait};
    return ms_device_policy()->group_climb(of->device, &climb) == MS_OK;
}

static bool fit(struct charge *of, bool may_wait)
{
    struct ms_device *device = of->device;
    bool taken = take(of);
    if (!taken && of->bytes <= atomic_load(&device->budget.cap_bytes)) {
        taken = room_and_take(of, false);
        if (!taken && ms_device_give_back(device)) {
            taken = room_and_take(of, false);
        }
        if (!taken) {
            (void)ms_device_make_room(device, 0);
            taken =
                device->group != NULL ? take_in_group(of, may_wait) : room_and_take(of, may_wait);
        }
    }
    return taken;
}

bool ms_device_charge(struct ms_device *device, enum ms_owner owner, uint64_t bytes, bool may_wait)
{
    struct charge charge = {.device = device, .owner = owner, .bytes = bytes};
    const bool charged = fit(&charge, may_wait);
    if (charged) {
        ms_device_check_thresholds(device);
    }
    return charged;
}

/* Nobody has the bytes yet: a charge would look like overhead that there is not (overhead.c). */
bool ms_device_set_aside(struct ms_device *device, uint64_t bytes)
{
    struct charge charge = {.device = device, .bytes = bytes, .aside = true};
    return fit(&charge, true);
}

void ms_device_discharge(struct ms_device *device, enum ms_owner owner, uint64_t bytes)
{
    ms_budget_discharge(&device->budget, owner, bytes);
    ms_device_check_thresholds(device);
}

void ms_device_note_charge(struct ms_device *device, bool more, enum ms_owner owner,
                           enum ms_charge_reason reason, uint64_t addr, uint64_t bytes,
                           uint32_t site)
{
    if (bytes == 0) {
        return;
    }
    struct ms_event event = {
        .kind = more ? MS_EVENT_CHARGE : MS_EVENT_DISCHARGE,
        .device = device->ordinal,
        .owner = (uint8_t)owner,
        .site = site,
        .addr = addr,
        .bytes = bytes,
        .aux = (uint64_t)reason,
    };
    if (reason == MS_CHARGE_ALLOCATION) {
        atomic_fetch_add(&device->forwarded_call_bytes, more ? bytes : -bytes);
    }
    ms_session_emit(&event);
}

/* --- streams ---------------------------------------------------------------------------------- */

void ms_device_stream_gone(struct ms_device *device, ms_stream_t stream)
{
    if (device->pool) {
        ms_pool_stream_gone(device->pool, stream);
    }
    for (int d = 0; ms_devices_used() > 1 && d < MS_DEVICES_MAX; d++) {
        struct ms_device *other = ms_device_get(d);
        if (other && other != device && other->pool) {
            ms_pool_stream_gone(other->pool, stream);
        }
    }
}

void ms_devices_settle(void)
{
    for (int d = 0; d < MS_DEVICES_MAX; d++) {
        struct ms_device *device = ms_device_get(d);
        if (device && device->pool) {
            ms_pool_settle(device->pool);
        }
    }
}
