/* SPDX-License-Identifier: Apache-2.0 */
/* Records of the application's memory pools, and the charge of each. */
#include "shim/device/mempools.h"

#include <stdlib.h>

#include "allocator/base/arithmetic.h"
#include "allocator/base/cancel.h"
#include "allocator/base/locks/lock.h"
#include "shim/device/capture.h"
#include "shim/device/context.h"
#include "shim/driver/driver.h"
#include "shim/process/log.h"

#define STEP_BYTES (32ULL << 20) /* by which the driver's pools grow */
#define UNIT_BYTES 512u          /* the unit in which they count bytes in use, as our pool does */

/* A destroyed pool's record is used again once this many others were destroyed after it. */
#define REST 64u

static struct ms_mempool *_Atomic first;
static uint64_t ends MS_GUARDED_BY(*MS_LOCK(MEMPOOLS)); /* how many pools were destroyed */

static _Atomic(struct ms_mempool *) currents[MS_DEVICES_MAX]; /* null: not asked yet */

struct ms_mempool *ms_mempool_find(CUmemoryPool handle)
{
    struct ms_mempool *pool = atomic_load_explicit(&first, memory_order_acquire);
    while (pool && (pool->handle != handle || pool->destroyed)) {
        pool = pool->next;
    }
    return pool;
}

/* Whether no block of a destroyed pool is left. */
static bool is_idle(struct ms_mempool *pool)
{
    ms_lock_acquire(&pool->lock);
    bool charged = pool->asking_bytes != 0 || pool->charged_bytes != 0;
    ms_lock_release(&pool->lock);
    return !charged && atomic_load(&pool->holder.used_bytes) == 0 &&
           atomic_load(&pool->outside_blocks) == 0;
}

static struct ms_mempool *find_rested(void) MS_REQUIRES(*MS_LOCK(MEMPOOLS))
{
    struct ms_mempool *pool = atomic_load_explicit(&first, memory_order_acquire);
    while (pool && (pool->ended == 0 || ends - pool->ended < REST || !is_idle(pool))) {
        pool = pool->next;
    }
    return pool;
}

/* Fills a new record, or one that rested. A thread that found it as another pool's may still read
 * it. So every field that such a thread reads is atomic, or never changes. What makes it a valid
 * record is written last. */
static void begin(struct ms_mempool *pool, CUmemoryPool handle, int ordinal, bool served,
                  uint64_t max_bytes)
{
    for (int d = 0; d < MS_DEVICES_MAX; d++) {
        struct ms_mempool *was = pool;
        (void)atomic_compare_exchange_strong(&currents[d], &was, NULL);
    }
    pool->handle = handle;
    pool->ordinal = ordinal;
    pool->served = served;
    pool->no_stream_waits = false;
    pool->ended = 0;
    atomic_store(&pool->holder.limit_bytes, ms_round_up(max_bytes, UNIT_BYTES));
    atomic_store(&pool->holder.used_high_bytes, 0);
    atomic_store(&pool->reserved_high_bytes, 0);
    pool->destroyed = false;
}

struct ms_mempool *ms_mempool_add(CUmemoryPool handle, int ordinal, bool served, uint64_t max_bytes)
{
    ms_lock_acquire(MS_LOCK(MEMPOOLS));
    struct ms_mempool *pool = ms_mempool_find(handle);
    if (!pool) {
        struct ms_mempool *rested = find_rested();
        pool = rested ? rested : calloc(1, sizeof *pool);
        if (pool) {
            begin(pool, handle, ordinal, served, max_bytes);
        }
        if (pool && !rested) {
            pool->holder.kind = MS_HOLDER_MEMPOOL;
            ms_lock_init(&pool->lock, MS_RANK_MEMPOOL);
            pool->next = first;
            atomic_store_explicit(&first, pool, memory_order_release);
        }
    }
    ms_lock_release(MS_LOCK(MEMPOOLS));
    return pool;
}

/* The device whose default pool this is; -1: no device's. */
static CUresult find_owner(CUmemoryPool handle, int *ordinal)
{
    *ordinal = -1;
    for (int d = 0; d < MS_DEVICES_MAX; d++) {
        CUmemoryPool other = NULL;
        CUresult result = MS_REAL(cuDeviceGetDefaultMemPool)(&other, d);
        if (result == CUDA_ERROR_INVALID_DEVICE) {
            break; /* no more devices */
        }
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_SUPPORTED) {
            return result;
        }
        if (result == CUDA_SUCCESS && other == handle) {
            *ordinal = d;
            break;
        }
    }
    return CUDA_SUCCESS;
}

CUresult ms_mempool_of(CUmemoryPool handle, struct ms_mempool **out)
{
    int owner = -1;
    *out = ms_mempool_find(handle);
    if (*out) {
        return CUDA_SUCCESS;
    }
    CUresult result = find_owner(handle, &owner);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    /* Owner -1: imported from another process, or a default pool of host or managed memory. */
    *out = ms_mempool_add(handle, owner, owner >= 0, 0);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Whether the driver is being asked to destroy this pool. */
static bool is_going(CUmemoryPool handle)
{
    ms_lock_acquire(MS_LOCK(MEMPOOLS));
    struct ms_mempool *pool = atomic_load_explicit(&first, memory_order_acquire);
    while (pool && (pool->handle != handle || !pool->destroyed || pool->ended != 0)) {
        pool = pool->next;
    }
    ms_lock_release(MS_LOCK(MEMPOOLS));
    return pool != NULL;
}

/* The lock is held until the driver's answer is found in the list and noted. Otherwise the pool
 * could be destroyed in between, or another one made current. */
static __attribute__((noinline, cold)) CUresult ask_current(const struct ms_device *device,
                                                            struct ms_mempool **out)
{
    CUmemoryPool handle = NULL;
    const int cancellation = ms_cancel_hold();
    ms_lock_acquire(MS_LOCK(CURRENT_POOL));
    CUresult result = MS_REAL(cuDeviceGetMemPool)(&handle, device->handle);
    *out = result == CUDA_SUCCESS ? ms_mempool_find(handle) : NULL;
    bool going = result == CUDA_SUCCESS && !*out && is_going(handle);
    if (*out) {
        atomic_store_explicit(&currents[device->ordinal], *out, memory_order_release);
    }
    ms_lock_release(MS_LOCK(CURRENT_POOL));
    ms_cancel_let(cancellation);
    if (going) {
        /* When the current pool is destroyed, the default pool becomes current (cuda.h,
         * cuMemPoolDestroy). */
        result = MS_REAL(cuDeviceGetDefaultMemPool)(&handle, device->handle);
    }
    return result == CUDA_SUCCESS && !*out ? ms_mempool_of(handle, out) : result;
}

CUresult ms_mempool_current(struct ms_device *device, struct ms_mempool **out)
{
    *out = atomic_load_explicit(&currents[device->ordinal], memory_order_acquire);
    return *out && !(*out)->destroyed ? CUDA_SUCCESS : ask_current(device, out);
}

/* --- accounts --------------------------------------------------------------------------------- */

static void raise(_Atomic uint64_t *high, uint64_t value)
{
    uint64_t seen = atomic_load(high);
    while (seen < value && !atomic_compare_exchange_weak(high, &seen, value)) {
    }
}

/* What a served pool holds reserved: its live bytes, and all that our pool could give it without
 * asking the driver. The pools of a device share the latter. */
uint64_t ms_mempool_reserved_bytes(struct ms_mempool *pool)
{
    uint64_t bytes = atomic_load(&pool->holder.used_bytes);
    struct ms_device *device = ms_device_get(pool->ordinal);
    if (device && device->pool) {
        struct ms_pool_stats stats;
        ms_pool_stats(device->pool, &stats);
        bytes += stats.free_bytes;
        if (bytes > stats.reserved_bytes) {
            bytes = stats.reserved_bytes;
        }
    }
    raise(&pool->reserved_high_bytes, bytes);
    return bytes;
}

static struct ms_device *device_charged(const struct ms_mempool *pool)
{
    return pool->ordinal < 0 ? NULL : ms_device_get(pool->ordinal);
}

bool ms_mempool_charge(struct ms_mempool *pool, uint64_t bytes, uint64_t *asked_bytes)
{
    struct ms_device *device = device_charged(pool);
    *asked_bytes = device ? ms_round_up(bytes, STEP_BYTES) : 0;
    if (!device) {
        return true;
    }
    /* Charges this even if the driver's pool has room: only the driver decides whether it uses that
     * room or grows. */
    if (!ms_device_charge(device, MS_OWNER_FORWARDED, *asked_bytes, true)) {
        if (!ms_device_is_the_cap(device)) {
            return false;
        }
        *asked_bytes = 0;
    }
    atomic_store_explicit(&device->driver_pools, true, memory_order_relaxed);
    ms_lock_acquire(&pool->lock);
    pool->asking_bytes += *asked_bytes;
    pool->charged_bytes += *asked_bytes;
    ms_lock_release(&pool->lock);
    return true;
}

void ms_mempool_correct(struct ms_mempool *pool, uint64_t asked_bytes)
{
    struct ms_device *device = device_charged(pool);
    cuuint64_t reserved = 0;
    if (!device) {
        return;
    }
    /* One thread at a time: an older answer would undo what a newer one has charged. The call only
     * reads a number. */
    const int cancellation = ms_cancel_hold();
    ms_lock_acquire(&pool->lock);
    bool known =
        pool->destroyed
            ? atomic_load(&pool->outside_blocks) == 0
            : MS_REAL(cuMemPoolGetAttribute)(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                             &reserved) == CUDA_SUCCESS;
    uint64_t before = pool->charged_bytes;
    pool->asking_bytes -= asked_bytes;
    uint64_t now = known ? reserved + pool->asking_bytes : before;
    if (now > before) {
        /* Bytes that other threads asked for are charged, and may be in the reserved bytes
         * already. */
        now = reserved > before ? reserved : before;
    }
    pool->charged_bytes = now;
    /* What was charged before the call is recorded only now. What is given back is recorded before
     * others may charge it, so that no recorded sum exceeds the cap. */
    uint64_t recorded = before > asked_bytes ? before - asked_bytes : 0;
    if (now < recorded) {
        ms_device_note_charge(device, false, MS_OWNER_FORWARDED, MS_CHARGE_DRIVER_POOL, 0,
                              recorded - now, 0);
    }
    if (now > before) {
        ms_budget_impose(&device->budget, MS_OWNER_FORWARDED, now - before);
    } else {
        ms_budget_discharge(&device->budget, MS_OWNER_FORWARDED, before - now);
    }
    ms_lock_release(&pool->lock);
    ms_cancel_let(cancellation);
    if (now > recorded) {
        ms_device_note_charge(device, true, MS_OWNER_FORWARDED, MS_CHARGE_DRIVER_POOL, 0,
                              now - recorded, 0);
    }
    ms_device_check_thresholds(device);
}

void ms_mempools_correct(const struct ms_device *device)
{
    if (!atomic_load_explicit(&device->driver_pools, memory_order_relaxed)) {
        return;
    }
    for (struct ms_mempool *p = atomic_load_explicit(&first, memory_order_acquire); p;
         p = p->next) {
        ms_lock_acquire(&p->lock);
        const bool charged = p->charged_bytes != 0 && p->ordinal == device->ordinal;
        ms_lock_release(&p->lock);
        if (charged) {
            ms_mempool_correct(p, 0);
        }
    }
}

uint64_t ms_mempools_trim(const struct ms_device *device)
{
    uint64_t released = 0;
    if (ms_captures_running()) {
        return 0;
    }
    for (struct ms_mempool *p = atomic_load_explicit(&first, memory_order_acquire); p;
         p = p->next) {
        const int cancellation = ms_cancel_hold();
        ms_lock_acquire(&p->lock);
        uint64_t before = p->charged_bytes;
        bool trimmed = before != 0 && !p->destroyed && p->ordinal == device->ordinal &&
                       MS_REAL(cuMemPoolTrimTo)(p->handle, 0) == CUDA_SUCCESS;
        ms_lock_release(&p->lock);
        ms_cancel_let(cancellation);
        if (!trimmed) {
            continue;
        }
        ms_mempool_correct(p, 0);
        ms_lock_acquire(&p->lock);
        released += before > p->charged_bytes ? before - p->charged_bytes : 0;
        ms_lock_release(&p->lock);
    }
    return released;
}

void ms_mempool_forget_current(int ordinal)
{
    if (ordinal >= 0 && ordinal < MS_DEVICES_MAX) {
        ms_lock_acquire(MS_LOCK(CURRENT_POOL));
        atomic_store_explicit(&currents[ordinal], NULL, memory_order_release);
        ms_lock_release(MS_LOCK(CURRENT_POOL));
    }
}

void ms_mempool_going(struct ms_mempool *pool)
{
    ms_lock_acquire(MS_LOCK(CURRENT_POOL));
    ms_lock_acquire(&pool->lock);
    pool->destroyed = true;
    ms_lock_release(&pool->lock);
    ms_lock_release(MS_LOCK(CURRENT_POOL));
}

void ms_mempool_end(struct ms_mempool *pool)
{
    ms_lock_acquire(&pool->lock);
    pool->destroyed = true;
    ms_lock_release(&pool->lock);
    ms_mempool_correct(pool, 0);
    /* CURRENT_POOL, too: a thread that got this pool's handle as the current one, before the driver
     * destroyed it, holds that lock, and must still see under it that the pool is going. */
    ms_lock_acquire(MS_LOCK(CURRENT_POOL));
    ms_lock_acquire(MS_LOCK(MEMPOOLS));
    pool->ended = ++ends;
    ms_lock_release(MS_LOCK(MEMPOOLS));
    ms_lock_release(MS_LOCK(CURRENT_POOL));
}

/* After a reset the maximum starts from what is in use. */
uint64_t ms_mempool_used_high_bytes(struct ms_mempool *pool)
{
    raise(&pool->holder.used_high_bytes, atomic_load(&pool->holder.used_bytes));
    return atomic_load(&pool->holder.used_high_bytes);
}
