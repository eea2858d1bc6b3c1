/* Records of memory pools, and the calls about them. */
#include "shim/serve/mempool.h"

#include <stdlib.h>

#include "shim/log.h"
#include "shim/serve/context.h"
#include "shim/serve/driver.h"
#include "shim/serve/peer.h"
#include "shim/serve/stream.h"

#define TRIM_WAIT_NS 2000000u

#define STEP_BYTES (32ULL << 20) /* by which the driver's pools grow at once */
#define UNIT_BYTES 512u          /* by which they count what is in use, as ours does */

/* So many others are destroyed before a destroyed pool's record is used again. */
#define REST 64u

static struct ms_mempool *_Atomic first;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held while a record is added or ends */
static uint64_t ends;                                    /* pools that were destroyed */

static _Atomic(struct ms_mempool *) currents[MS_DEVICES_MAX]; /* null: not asked yet */

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return bytes > UINT64_MAX - unit ? UINT64_MAX : (bytes + unit - 1) / unit * unit;
}

static struct ms_mempool *find(CUmemoryPool handle)
{
    struct ms_mempool *pool = atomic_load_explicit(&first, memory_order_acquire);
    while (pool && (pool->handle != handle || pool->destroyed)) {
        pool = pool->next;
    }
    return pool;
}

/* Whether nothing of a destroyed pool is left. A block of the driver's may be: to give that back
 * only looks at what the record's pool holds then. */
static bool is_idle(struct ms_mempool *pool)
{
    pthread_mutex_lock(&pool->lock);
    bool charged = pool->asking_bytes != 0 || pool->charged_bytes != 0;
    pthread_mutex_unlock(&pool->lock);
    return !charged && atomic_load(&pool->holder.used_bytes) == 0;
}

static struct ms_mempool *find_rested(void)
{
    struct ms_mempool *pool = atomic_load_explicit(&first, memory_order_acquire);
    while (pool && (pool->ended == 0 || ends - pool->ended < REST || !is_idle(pool))) {
        pool = pool->next;
    }
    return pool;
}

/* Of a new record, or one that rested. What others look at without a lock comes last. */
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
    pool->holder.kind = MS_HOLDER_MEMPOOL;
    pool->holder.limit_bytes = round_up(max_bytes, UNIT_BYTES);
    atomic_store(&pool->holder.used_high_bytes, 0);
    atomic_store(&pool->reserved_high_bytes, 0);
    pool->destroyed = false;
}

static struct ms_mempool *add(CUmemoryPool handle, int ordinal, bool served, uint64_t max_bytes)
{
    pthread_mutex_lock(&lock);
    struct ms_mempool *pool = find(handle);
    if (!pool) {
        struct ms_mempool *rested = find_rested();
        pool = rested ? rested : calloc(1, sizeof *pool);
        if (pool) {
            begin(pool, handle, ordinal, served, max_bytes);
        }
        if (pool && !rested) {
            pthread_mutex_init(&pool->lock, NULL);
            pool->next = first;
            atomic_store_explicit(&first, pool, memory_order_release);
        }
    }
    pthread_mutex_unlock(&lock);
    return pool;
}

struct ms_mempool *ms_mempool_of(CUmemoryPool handle)
{
    struct ms_mempool *pool = find(handle);
    for (int d = 0; !pool && d < MS_DEVICES_MAX; d++) {
        CUmemoryPool other = NULL;
        if (MS_REAL(cuDeviceGetDefaultMemPool)(&other, d) != CUDA_SUCCESS) {
            break;
        }
        if (other == handle) {
            return add(handle, d, true, 0);
        }
    }
    /* Imported from another process, or a default pool of host or managed memory. */
    return pool ? pool : add(handle, -1, false, 0);
}

struct ms_mempool *ms_mempool_current(struct ms_device *device)
{
    struct ms_mempool *pool =
        atomic_load_explicit(&currents[device->ordinal], memory_order_acquire);
    CUmemoryPool handle = NULL;
    if ((!pool || pool->destroyed) &&
        MS_REAL(cuDeviceGetMemPool)(&handle, device->handle) == CUDA_SUCCESS) {
        pool = ms_mempool_of(handle);
        atomic_store_explicit(&currents[device->ordinal], pool, memory_order_release);
    }
    return pool;
}

/* --- accounts --------------------------------------------------------------------------------- */

static void raise(_Atomic uint64_t *high, uint64_t value)
{
    uint64_t seen = atomic_load(high);
    while (seen < value && !atomic_compare_exchange_weak(high, &seen, value)) {
    }
}

/* What a served pool holds reserved: its live bytes, and all that our pool could give it without
 * asking the driver. The latter is shared between the pools of a device. */
static uint64_t reserved_bytes(struct ms_mempool *pool)
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
    *asked_bytes = device ? round_up(bytes, STEP_BYTES) : 0;
    if (!device) {
        return true;
    }
    /* Also where the driver's pool has room: whether it uses that or grows is not ours to say. */
    if (!ms_device_charge(device, MS_OWNER_FORWARDED, *asked_bytes, true)) {
        return false;
    }
    pthread_mutex_lock(&pool->lock);
    pool->asking_bytes += *asked_bytes;
    pool->charged_bytes += *asked_bytes;
    pthread_mutex_unlock(&pool->lock);
    return true;
}

void ms_mempool_correct(struct ms_mempool *pool, uint64_t asked_bytes)
{
    struct ms_device *device = device_charged(pool);
    cuuint64_t reserved = 0;
    if (!device) {
        return;
    }
    /* One look at a time, and none may be overtaken: an older one would undo what a newer one has
     * charged. The call only reads a number. */
    pthread_mutex_lock(&pool->lock);
    bool known = pool->destroyed ||
                 MS_REAL(cuMemPoolGetAttribute)(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                                &reserved) == CUDA_SUCCESS;
    uint64_t before = pool->charged_bytes;
    pool->asking_bytes -= asked_bytes;
    uint64_t now = known ? reserved + pool->asking_bytes : before;
    if (now > before) {
        /* What others ask for is charged, and may be in the reserved bytes already. */
        now = reserved > before ? reserved : before;
    }
    pool->charged_bytes = now;
    /* What was charged before the call was not told yet. What is given back is told before others
     * may charge it, so that no sum of what was told passes the cap. */
    uint64_t told = before > asked_bytes ? before - asked_bytes : 0;
    if (now < told) {
        ms_device_note_charge(device, false, MS_OWNER_FORWARDED, MS_CHARGE_DRIVER_POOL, 0,
                              told - now, 0);
    }
    if (now > before) {
        ms_budget_impose(&device->budget, MS_OWNER_FORWARDED, now - before);
    } else {
        ms_budget_discharge(&device->budget, MS_OWNER_FORWARDED, before - now);
    }
    pthread_mutex_unlock(&pool->lock);
    if (now > told) {
        ms_device_note_charge(device, true, MS_OWNER_FORWARDED, MS_CHARGE_DRIVER_POOL, 0,
                              now - told, 0);
    }
    ms_device_check_thresholds(device);
}

uint64_t ms_mempools_trim(const struct ms_device *device)
{
    uint64_t released = 0;
    if (ms_captures_running()) {
        return 0;
    }
    for (struct ms_mempool *p = atomic_load_explicit(&first, memory_order_acquire); p;
         p = p->next) {
        pthread_mutex_lock(&p->lock);
        uint64_t before = p->charged_bytes;
        bool trimmed = before != 0 && !p->destroyed && p->ordinal == device->ordinal &&
                       MS_REAL(cuMemPoolTrimTo)(p->handle, 0) == CUDA_SUCCESS;
        pthread_mutex_unlock(&p->lock);
        if (!trimmed) {
            continue;
        }
        ms_mempool_correct(p, 0);
        pthread_mutex_lock(&p->lock);
        released += before > p->charged_bytes ? before - p->charged_bytes : 0;
        pthread_mutex_unlock(&p->lock);
    }
    return released;
}

/* --- the calls -------------------------------------------------------------------------------- */

CUresult ms_serve_cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice_v1 dev)
{
    CUresult result = MS_REAL(cuDeviceGetDefaultMemPool)(pool_out, dev);
    if (result == CUDA_SUCCESS && !find(*pool_out)) {
        (void)add(*pool_out, dev, true, 0);
    }
    return result;
}

CUresult ms_serve_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice_v1 dev)
{
    return MS_REAL(cuDeviceGetMemPool)(pool, dev);
}

static void forget_current(int ordinal)
{
    if (ordinal >= 0 && ordinal < MS_DEVICES_MAX) {
        atomic_store_explicit(&currents[ordinal], NULL, memory_order_release);
    }
}

CUresult ms_serve_cuDeviceSetMemPool(CUdevice_v1 dev, CUmemoryPool pool)
{
    CUresult result = MS_REAL(cuDeviceSetMemPool)(dev, pool);
    forget_current(dev);
    return result;
}

/* Managed memory has default pools of its own. */
CUresult ms_serve_cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
                                         CUmemAllocationType type)
{
    CUresult result = MS_REAL(cuMemGetDefaultMemPool)(pool_out, location, type);
    if (result == CUDA_SUCCESS && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
        !find(*pool_out)) {
        (void)add(*pool_out, location->id, type == CU_MEM_ALLOCATION_TYPE_PINNED, 0);
    }
    return result;
}

CUresult ms_serve_cuMemGetMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
                                  CUmemAllocationType type)
{
    return MS_REAL(cuMemGetMemPool)(pool_out, location, type);
}

CUresult ms_serve_cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type,
                                  CUmemoryPool pool)
{
    CUresult result = MS_REAL(cuMemSetMemPool)(location, type, pool);
    if (location && location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
        forget_current(location->id);
    }
    return result;
}

/* It is destroyed. What the driver's pool held is charged no more. */
static void end(struct ms_mempool *pool)
{
    struct ms_device *device = device_charged(pool);
    pthread_mutex_lock(&pool->lock);
    pool->destroyed = true;
    uint64_t charged = pool->charged_bytes;
    pool->charged_bytes = 0;
    pthread_mutex_unlock(&pool->lock);
    if (device && charged != 0) {
        ms_device_discharge(device, MS_OWNER_FORWARDED, charged);
        ms_device_note_charge(device, false, MS_OWNER_FORWARDED, MS_CHARGE_DRIVER_POOL, 0, charged,
                              0);
    }
    pthread_mutex_lock(&lock);
    pool->ended = ++ends;
    pthread_mutex_unlock(&lock);
}

CUresult ms_serve_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps_v1 *poolProps)
{
    CUresult result = MS_REAL(cuMemPoolCreate)(pool, poolProps);
    if (result == CUDA_SUCCESS) {
        struct ms_mempool *stale = find(*pool);
        if (stale) {
            end(stale); /* on a road that is not hooked, or it never was a pool */
        }
        bool on_device = poolProps->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
        bool served = on_device && poolProps->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
                      poolProps->handleTypes == CU_MEM_HANDLE_TYPE_NONE;
        (void)add(*pool, on_device ? poolProps->location.id : -1, served, poolProps->maxSize);
    }
    return result;
}

/* Blocks that are still in use live on, as the driver's do (cuda.h, cuMemPoolDestroy). */
CUresult ms_serve_cuMemPoolDestroy(CUmemoryPool pool)
{
    struct ms_mempool *known = find(pool);
    if (known) {
        pthread_mutex_lock(&known->lock);
        known->destroyed = true; /* before the driver can give the handle to another */
        pthread_mutex_unlock(&known->lock);
    }
    CUresult result = MS_REAL(cuMemPoolDestroy)(pool);
    if (known && result != CUDA_SUCCESS) {
        known->destroyed = false;
    } else if (known) {
        end(known);
    }
    return result;
}

/* Our pool, where this pool is served from one. */
static ms_pool_t *ours(const struct ms_mempool *pool)
{
    struct ms_device *device = pool && pool->served ? ms_device_get(pool->ordinal) : NULL;
    return device ? device->pool : NULL;
}

CUresult ms_serve_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    CUresult result = MS_REAL(cuMemPoolTrimTo)(pool, minBytesToKeep);
    struct ms_mempool *known = result == CUDA_SUCCESS ? ms_mempool_of(pool) : NULL;
    if (ours(known)) {
        uint64_t used = atomic_load(&known->holder.used_bytes);
        uint64_t keep = minBytesToKeep > used ? minBytesToKeep - used : 0;
        if (keep == 0) {
            /* What the application has seen to be done must go (cuda.h, cuMemPoolTrimTo). That it
             * is done, memshim only sees by an event of its own, an instant later. */
            (void)ms_device_make_room(ms_device_get(known->ordinal), TRIM_WAIT_NS);
        } else {
            (void)ms_pool_trim(ours(known), keep);
        }
    } else if (known) {
        ms_mempool_correct(known, 0);
    }
    return result;
}

/* The driver's pool of this handle keeps the attributes, and refuses what is wrong. Of the reuse
 * flags (cuda.h, CUmemPool_attribute) ours heeds the one about waits that nobody asked for. It
 * follows no dependency of the program's, so there is nothing to switch off; and what other streams
 * have freed and completed belongs to every stream. */
CUresult ms_serve_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    CUresult result = MS_REAL(cuMemPoolSetAttribute)(pool, attr, value);
    struct ms_mempool *known = result == CUDA_SUCCESS ? ms_mempool_of(pool) : NULL;
    if (known && attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
        atomic_store(&known->holder.used_high_bytes, 0);
    } else if (known && attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) {
        atomic_store(&known->reserved_high_bytes, 0);
    } else if (known && attr == CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) {
        atomic_store(&known->no_stream_waits, *(const int *)value == 0);
    }
    return result;
}

CUresult ms_serve_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    CUresult result = MS_REAL(cuMemPoolGetAttribute)(pool, attr, value);
    struct ms_mempool *known = result == CUDA_SUCCESS ? ms_mempool_of(pool) : NULL;
    if (!ours(known)) {
        return result;
    }
    uint64_t used = atomic_load(&known->holder.used_bytes);
    switch (attr) {
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = used;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        raise(&known->holder.used_high_bytes, used); /* a reset one begins at what is in use */
        *(cuuint64_t *)value = atomic_load(&known->holder.used_high_bytes);
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = reserved_bytes(known);
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        (void)reserved_bytes(known);
        *(cuuint64_t *)value = atomic_load(&known->reserved_high_bytes);
        break;
    default:
        break;
    }
    return result;
}

CUresult ms_serve_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc_v1 *map, size_t count)
{
    CUresult result = MS_REAL(cuMemPoolSetAccess)(pool, map, count);
    struct ms_mempool *known = result == CUDA_SUCCESS ? ms_mempool_of(pool) : NULL;
    if (!ours(known)) {
        return result;
    }
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
            result = ms_peer_pool_access(ms_device_get(known->ordinal), map[i].location.id,
                                         map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE);
        }
    }
    return result;
}

CUresult ms_serve_cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool,
                                     CUmemLocation_v1 *location)
{
    return MS_REAL(cuMemPoolGetAccess)(flags, memPool, location);
}

CUresult ms_serve_cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool,
                                                   CUmemAllocationHandleType handleType,
                                                   unsigned long long flags)
{
    return MS_REAL(cuMemPoolExportToShareableHandle)(handle_out, pool, handleType, flags);
}

CUresult ms_serve_cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                                     CUmemAllocationHandleType handleType,
                                                     unsigned long long flags)
{
    return MS_REAL(cuMemPoolImportFromShareableHandle)(pool_out, handle, handleType, flags);
}

/* Memory of our pool is unknown to the driver as an allocation of one of its pools: its error is
 * the answer. Only pools that were created for export can be exported in any case. */
CUresult ms_serve_cuMemPoolExportPointer(CUmemPoolPtrExportData_v1 *shareData_out,
                                         CUdeviceptr_v2 ptr)
{
    return MS_REAL(cuMemPoolExportPointer)(shareData_out, ptr);
}

CUresult ms_serve_cuMemPoolImportPointer(CUdeviceptr_v2 *ptr_out, CUmemoryPool pool,
                                         CUmemPoolPtrExportData_v1 *shareData)
{
    return MS_REAL(cuMemPoolImportPointer)(ptr_out, pool, shareData);
}

void ms_mempools_fork_prepare(void)
{
    pthread_mutex_lock(&lock);
}

void ms_mempools_fork_parent(void)
{
    pthread_mutex_unlock(&lock);
}

void ms_mempools_fork_child(void)
{
    pthread_mutex_init(&lock, NULL);
}
