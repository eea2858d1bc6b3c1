/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of PyTorch's expandable segments: handles, mappings and access of our own. */
#include "shim/policy/proxies.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/arenas/proxy.h"
#include "allocator/base/containers/chains.h"
#include "allocator/base/locks/lock.h"
#include "shim/device/addresses/ranges.h"
#include "shim/device/addresses/reservations.h"
#include "shim/device/capture.h"
#include "shim/device/context.h"
#include "shim/device/group/device_group.h"
#include "shim/driver/caller.h"
#include "shim/driver/driver.h"
#include "shim/driver/torch_library.h"
#include "shim/policy/chunk_kinds.h"
#include "shim/policy/grant.h"
#include "shim/policy/oom.h"
#include "shim/process/log.h"
#include "shim/sharing/exports.h"

/* Our handles count from here. No driver's handle, be it an address or a small number, lies
 * here. */
#define FIRST_HANDLE (0x6d73ULL << 48)
#define LAST_HANDLE  (FIRST_HANDLE + (1ULL << 47))

struct proxy_page {
    struct ms_link by_handle; /* entered while it has references */
    CUmemGenericAllocationHandle_v1 handle;
    uint64_t bytes;
    struct ms_device *device;
    ms_proxy_t *proxy;
    CUmemAllocationProp_v1 prop; /* as asked for; the pool creates its chunk with it */
    uint64_t references;         /* the application's; the handle is valid while there are any */
    uint64_t uses;               /* references, mappings, and calls under way */
    bool mapped;                 /* by the framework */
};

struct proxy_mapping {
    CUdeviceptr_v2 addr;
    uint64_t bytes;
    struct proxy_page *page;
    bool direct; /* a second mapping of a pinned page's chunk, made by the driver itself */
    bool accessible;
};

MS_RANGES_HOLD(struct proxy_mapping);

static struct ms_chains by_handle MS_GUARDED_BY(*MS_LOCK(PROXIES)) = {
    .offset = offsetof(struct proxy_page, by_handle)};
static struct ms_ranges mappings MS_GUARDED_BY(*MS_LOCK(PROXIES)) = {
    .entry_bytes = sizeof(struct proxy_mapping)};
static atomic_bool replace_malloc; /* ms_proxies_replace_malloc */
static uint64_t last_handle MS_GUARDED_BY(*MS_LOCK(PROXIES)) = FIRST_HANDLE;

/* --- pages ------------------------------------------------------------------------------------ */

static void refer_locked(struct proxy_page *page)
{
    page->uses++;
    if (page->references++ == 0) {
        ms_chains_enter(&by_handle, page, page->handle);
    }
}

/* Releases the lock, and the page with its last use. */
static void drop_use_and_unlock(struct proxy_page *page) MS_RELEASE(*MS_LOCK(PROXIES))
{
    bool gone = --page->uses == 0;
    ms_lock_release(MS_LOCK(PROXIES));
    if (gone) {
        ms_proxy_release(page->device->pool, page->proxy);
        ms_device_check_thresholds(page->device);
        free(page);
    }
}

static void drop_use(struct proxy_page *page)
{
    ms_lock_acquire(MS_LOCK(PROXIES));
    drop_use_and_unlock(page);
}

/* The page, kept for the length of one call (drop_use); null: no such handle. */
static struct proxy_page *use(CUmemGenericAllocationHandle_v1 handle)
{
    ms_lock_acquire(MS_LOCK(PROXIES));
    struct proxy_page *page = ms_chains_find(&by_handle, handle);
    if (page) {
        page->uses++;
    }
    ms_lock_release(MS_LOCK(PROXIES));
    return page;
}

bool ms_proxies_own(CUmemGenericAllocationHandle_v1 handle)
{
    return handle > FIRST_HANDLE && handle <= LAST_HANDLE;
}

/* Whether the present call is PyTorch's, for memory in which it reports tensors. */
static bool reports_tensors(void)
{
    return ms_options()->torch == MS_TORCH_NATIVE &&
           ms_library_at(ms_caller()) == MS_LIBRARY_C10_CUDA && ms_torch_library_will_report();
}

struct ms_device *ms_proxies_home(const CUmemAllocationProp_v1 *prop, size_t size,
                                  unsigned long long flags)
{
    if (flags != 0 || size == 0 || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || prop->allocFlags.usage != 0 ||
        !reports_tensors()) {
        return NULL;
    }
    struct ms_device *device = NULL;
    (void)ms_device_use(prop->location.id, &device); /* the caller asks again, and gets the error */
    bool served =
        device && device->pool && device->granule_bytes != 0 && size % device->granule_bytes == 0;
    return served ? device : NULL;
}

void ms_proxies_reserved(const struct ms_device *device, CUdeviceptr_v2 addr, uint64_t bytes)
{
    if (device && device->pool && device->granule_bytes != 0 && addr % device->granule_bytes == 0 &&
        bytes % device->granule_bytes == 0 && reports_tensors()) {
        ms_proxy_reserved(device->pool, addr, bytes);
    }
}

static void forget_reservation(const struct ms_device *device, CUdeviceptr_v2 addr)
{
    if (device && device->pool) {
        ms_proxy_reservation_gone(device->pool, addr);
    }
}

void ms_proxies_reservation_gone(const struct ms_reservation *reservation)
{
    const struct ms_device *recorded =
        reservation->recorded >= 0 ? ms_device_get(reservation->recorded) : NULL;
    forget_reservation(recorded, reservation->addr);
    if (reservation->proxies != recorded) {
        forget_reservation(reservation->proxies, reservation->addr);
    }
}

static ms_status_t attempt(void *ctx, bool may_wait)
{
    struct proxy_page *page = ctx;
    return ms_proxy_create(page->device->pool, page->bytes, &page->prop, may_wait, &page->proxy);
}

static ms_status_t create_in_group(struct proxy_page *page, bool may_wait)
{
    const struct ms_group_climb climb = {
        .attempt = attempt, .ctx = page, .bytes = page->bytes, .may_wait = may_wait};
    return ms_device_group_climb(page->device, &climb);
}

/* The driver's own memory pools are not part of ours: if room is missing, what they keep unused is
 * given back and the request tried again. */
static ms_status_t create(struct proxy_page *page)
{
    const bool may_wait = !ms_captures_running();
    const bool in_steps = page->device->group != NULL || atomic_load(&page->device->driver_pools);
    ms_exports_reap();
    ms_status_t status = attempt(page, may_wait && !in_steps);
    if (status == MS_ERR_NO_MEMORY && ms_device_give_back(page->device)) {
        status = attempt(page, may_wait && !in_steps);
    }
    if (status == MS_ERR_NO_MEMORY && page->device->group != NULL) {
        status = create_in_group(page, may_wait);
    } else if (status == MS_ERR_NO_MEMORY && in_steps && may_wait) {
        status = attempt(page, true);
    }
    ms_device_check_thresholds(page->device);
    return status;
}

void ms_proxies_replace_malloc(void)
{
    atomic_store(&replace_malloc, true);
}

bool ms_proxies_are_malloc(void)
{
    return atomic_load(&replace_malloc);
}

CUresult ms_proxies_create(struct ms_device *device, CUmemGenericAllocationHandle_v1 *handle,
                           size_t size, const CUmemAllocationProp_v1 *prop)
{
    CUresult kind = ms_chunk_kind_answer(device, prop);
    if (kind != CUDA_SUCCESS) {
        return kind;
    }
    struct proxy_page *page = calloc(1, sizeof *page);
    if (!page) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    page->bytes = size;
    page->device = device;
    page->prop = *prop;
    struct ms_oom_tries tries = {0};
    ms_status_t status;
    do {
        status = create(page);
    } while (status == MS_ERR_NO_MEMORY && !ms_oom_refuses(device, size, size, &tries));
    if (status != MS_OK) {
        free(page);
        return ms_result_from(status);
    }
    ms_lock_acquire(MS_LOCK(PROXIES));
    page->handle = ++last_handle;
    refer_locked(page);
    ms_lock_release(MS_LOCK(PROXIES));
    *handle = page->handle;
    if (atomic_load(&replace_malloc)) {
        ms_context_make_current(device);
    }
    ms_oom_over(device);
    return CUDA_SUCCESS;
}

CUresult ms_proxies_release(CUmemGenericAllocationHandle_v1 handle)
{
    ms_lock_acquire(MS_LOCK(PROXIES));
    struct proxy_page *page = ms_chains_find(&by_handle, handle);
    if (!page) {
        ms_lock_release(MS_LOCK(PROXIES));
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (--page->references == 0) {
        ms_chains_remove(&by_handle, page);
    }
    drop_use_and_unlock(page);
    return CUDA_SUCCESS;
}

CUresult ms_proxies_properties(CUmemAllocationProp_v1 *prop, CUmemGenericAllocationHandle_v1 handle)
{
    struct proxy_page *page = prop ? use(handle) : NULL;
    if (!page) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *prop = page->prop;
    drop_use(page);
    return CUDA_SUCCESS;
}

static CUresult pin_page(const struct proxy_page *page, CUmemGenericAllocationHandle_v1 *chunk)
{
    struct ms_proxy_info info = {0};
    ms_status_t status = ms_proxy_show(page->device->pool, page->proxy, &info);
    *chunk = info.chunk;
    ms_device_check_thresholds(page->device);
    if ((status == MS_OK && info.chunk == 0) || status == MS_ERR_NOT_SUPPORTED) {
        MS_LOG_ONCE(
            MS_LOG_WARN,
            "a page of PyTorch's consists of parts that cannot be joined here, so it cannot be "
            "shared with another process or device; MEMSHIM_TORCH=off keeps pages whole");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return ms_result_from(status);
}

CUresult ms_proxies_show(CUmemGenericAllocationHandle_v1 handle,
                         CUmemGenericAllocationHandle_v1 *chunk)
{
    struct proxy_page *page = use(handle);
    if (!page) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = pin_page(page, chunk);
    drop_use(page);
    return result;
}

/* --- mappings --------------------------------------------------------------------------------- */

static struct proxy_mapping *mapping_at(size_t index) MS_REQUIRES(*MS_LOCK(PROXIES))
{
    return (struct proxy_mapping *)mappings.entries + index;
}

/* Removes the mapping that was just put there. */
static void withdraw(const struct proxy_mapping *mapping)
{
    ms_lock_acquire(MS_LOCK(PROXIES));
    size_t i = ms_ranges_place(&mappings, mapping->addr);
    if (i < mappings.count && mapping_at(i)->addr == mapping->addr) {
        ms_ranges_remove(&mappings, i, 1);
    }
    mapping->page->mapped = mapping->page->mapped && mapping->direct;
    drop_use_and_unlock(mapping->page);
}

/* Enters the mapping into the table before it is made, so that the place is taken. Nothing else may
 * be mapped there (cuda.h, cuMemMap). A mapping of a part of a chunk gets the driver's own
 * error. */
static CUresult announce(struct proxy_mapping *mapping, size_t offset,
                         CUmemGenericAllocationHandle_v1 handle)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    ms_lock_acquire(MS_LOCK(PROXIES));
    struct proxy_page *page = ms_chains_find(&by_handle, handle);
    size_t i = ms_ranges_place(&mappings, mapping->addr);
    bool vacant = i == mappings.count || mapping_at(i)->addr >= mapping->addr + mapping->bytes;
    if (page && vacant && mapping->bytes < page->bytes && offset <= page->bytes - mapping->bytes) {
        result = CUDA_ERROR_NOT_SUPPORTED;
    } else if (page && vacant && mapping->bytes == page->bytes && offset == 0) {
        mapping->page = page;
        mapping->direct = page->mapped;
        result = ms_ranges_insert(&mappings, mapping) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        page->uses++;
        page->mapped = true;
    }
    ms_lock_release(MS_LOCK(PROXIES));
    return result;
}

/* A second mapping, made by whoever was shown the handle. */
static CUresult map_directly(const struct proxy_mapping *mapping)
{
    CUmemGenericAllocationHandle_v1 chunk = 0;
    CUresult result = pin_page(mapping->page, &chunk);
    return result == CUDA_SUCCESS ? MS_REAL(cuMemMap)(mapping->addr, mapping->bytes, 0, chunk, 0)
                                  : result;
}

CUresult ms_proxies_map(CUdeviceptr_v2 addr, size_t size, size_t offset,
                        CUmemGenericAllocationHandle_v1 handle, unsigned long long flags)
{
    struct ms_reservation reservation;
    struct proxy_mapping mapping = {.addr = addr, .bytes = size};
    if (flags != 0 || !ms_reservations_at(addr, size, &reservation)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = announce(&mapping, offset, handle);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct proxy_page *page = mapping.page;
    if (addr % page->device->granule_bytes != 0 ||
        (reservation.proxies && reservation.proxies != page->device && !mapping.direct)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (mapping.direct) {
        result = map_directly(&mapping);
    } else {
        ms_reservations_note_proxies(addr, page->device);
        result = ms_result_from(ms_proxy_map(page->device->pool, page->proxy, addr,
                                             reservation.addr, reservation.bytes));
    }
    if (result != CUDA_SUCCESS) {
        withdraw(&mapping);
    }
    return result;
}

/* The mappings from first to end that touch a range. */
struct mapping_span {
    size_t first, end;
    bool pages; /* the whole range is pages of one device */
    bool whole; /* and none of them is cut */
};

static struct mapping_span span_locked(CUdeviceptr_v2 addr, uint64_t size)
    MS_REQUIRES(*MS_LOCK(PROXIES))
{
    struct mapping_span span = {.first = ms_ranges_place(&mappings, addr)};
    CUdeviceptr_v2 at = addr;
    span.pages = true;
    for (span.end = span.first;
         span.end < mappings.count && mapping_at(span.end)->addr < addr + size; span.end++) {
        const struct proxy_mapping *mapping = mapping_at(span.end);
        span.pages = span.pages && !mapping->direct && mapping->addr <= at &&
                     mapping->page->device == mapping_at(span.first)->page->device;
        at = mapping->addr + mapping->bytes;
    }
    span.pages = span.pages && span.end > span.first && at >= addr + size;
    span.whole = span.pages && mapping_at(span.first)->addr == addr && at == addr + size;
    return span;
}

/* Unmaps a mapping of the driver's own, of a shown chunk. */
static CUresult unmap_directly(struct proxy_mapping *mapping)
{
    CUresult result = MS_REAL(cuMemUnmap)(mapping->addr, mapping->bytes);
    ms_lock_acquire(MS_LOCK(PROXIES));
    if (result != CUDA_SUCCESS) {
        (void)ms_ranges_insert(&mappings, mapping); /* there was room for it before */
        ms_lock_release(MS_LOCK(PROXIES));
    } else {
        drop_use_and_unlock(mapping->page);
    }
    return result;
}

static CUresult unmap_pages(CUdeviceptr_v2 addr, size_t size, struct proxy_mapping *taken,
                            size_t count)
{
    struct ms_device *device = taken[0].page->device;
    ms_arenas_block_gone(device->arenas, addr, size);
    CUresult result = ms_result_from(ms_proxy_unmap(device->pool, addr, size));
    for (size_t i = 0; i < count; i++) {
        ms_lock_acquire(MS_LOCK(PROXIES));
        if (result != CUDA_SUCCESS) {
            (void)ms_ranges_insert(&mappings, &taken[i]); /* there was room for it before */
            ms_lock_release(MS_LOCK(PROXIES));
        } else {
            taken[i].page->mapped = false;
            drop_use_and_unlock(taken[i].page);
        }
    }
    ms_device_check_thresholds(device);
    if (result == CUDA_SUCCESS) {
        ms_exports_unmapped(addr, size);
        ms_note_given_back(device->ordinal, addr, size);
    }
    return result;
}

enum ms_proxies_cover ms_proxies_unmap(CUdeviceptr_v2 addr, size_t size, CUresult *result)
{
    if (atomic_load_explicit(&mappings.count, memory_order_relaxed) == 0) {
        return MS_PROXIES_NONE;
    }
    struct proxy_mapping *taken = NULL;
    /* Removed first: another thread may map there as soon as the range is unmapped. */
    ms_lock_acquire(MS_LOCK(PROXIES));
    struct mapping_span span = span_locked(addr, size);
    size_t count = span.end - span.first;
    bool direct = count == 1 && mapping_at(span.first)->direct &&
                  mapping_at(span.first)->addr == addr && mapping_at(span.first)->bytes == size;
    if (span.whole || direct) {
        taken = malloc(count * sizeof *taken);
        if (taken) {
            memcpy(taken, mapping_at(span.first), count * sizeof *taken);
            ms_ranges_remove(&mappings, span.first, count);
        }
    }
    ms_lock_release(MS_LOCK(PROXIES));
    if (!span.whole && !direct) {
        return count == 0 ? MS_PROXIES_NONE : MS_PROXIES_INSIDE;
    }
    *result = !taken   ? CUDA_ERROR_OUT_OF_MEMORY
              : direct ? unmap_directly(taken)
                       : unmap_pages(addr, size, taken, count);
    free(taken);
    return MS_PROXIES_WHOLE;
}

/* --- access ----------------------------------------------------------------------------------- */

static void note_accessible(CUdeviceptr_v2 addr, size_t size)
{
    ms_lock_acquire(MS_LOCK(PROXIES));
    for (size_t i = ms_ranges_place(&mappings, addr);
         i < mappings.count && mapping_at(i)->addr < addr + size; i++) {
        mapping_at(i)->accessible = true;
    }
    ms_lock_release(MS_LOCK(PROXIES));
}

enum ms_proxies_cover ms_proxies_access(CUdeviceptr_v2 addr, size_t size,
                                        const CUmemAccessDesc_v1 *desc, size_t count,
                                        CUresult *result)
{
    struct ms_reservation reservation;
    struct ms_access before;
    if (atomic_load_explicit(&mappings.count, memory_order_relaxed) == 0) {
        return MS_PROXIES_NONE;
    }
    ms_lock_acquire(MS_LOCK(PROXIES));
    struct mapping_span span = span_locked(addr, size);
    struct ms_device *device = span.pages ? mapping_at(span.first)->page->device : NULL;
    ms_lock_release(MS_LOCK(PROXIES));
    if (!device || size % device->granule_bytes != 0 || addr % device->granule_bytes != 0 ||
        !ms_reservations_at(addr, size, &reservation) ||
        !ms_reservations_grant(addr, desc, count, &before)) {
        return span.first == span.end ? MS_PROXIES_NONE : MS_PROXIES_INSIDE;
    }
    *result = ms_result_from(ms_proxy_access(device->pool, addr, size));
    if (*result == CUDA_SUCCESS) {
        note_accessible(addr, size);
    } else {
        ms_reservations_put_back(addr, &before);
    }
    return MS_PROXIES_WHOLE;
}

/* --- identity --------------------------------------------------------------------------------- */

bool ms_proxies_at(CUdeviceptr_v2 addr, struct ms_proxy_view *out)
{
    if (atomic_load_explicit(&mappings.count, memory_order_relaxed) == 0) {
        return false;
    }
    ms_lock_acquire(MS_LOCK(PROXIES));
    size_t i = ms_ranges_place(&mappings, addr);
    bool found = i < mappings.count && mapping_at(i)->addr <= addr && !mapping_at(i)->direct;
    if (found) {
        *out = (struct ms_proxy_view){.addr = mapping_at(i)->addr,
                                      .bytes = mapping_at(i)->bytes,
                                      .handle = mapping_at(i)->page->handle,
                                      .prop = mapping_at(i)->page->prop,
                                      .accessible = mapping_at(i)->accessible};
    }
    ms_lock_release(MS_LOCK(PROXIES));
    return found;
}

bool ms_proxies_in(CUdeviceptr_v2 addr, uint64_t size)
{
    ms_lock_acquire(MS_LOCK(PROXIES));
    size_t i = ms_ranges_place(&mappings, addr);
    bool found = i < mappings.count && mapping_at(i)->addr < addr + size;
    ms_lock_release(MS_LOCK(PROXIES));
    return found;
}

/* The page around addr, or the first one after it that begins before `end`, kept for the length of
 * one call. *next: where the page ends. */
static struct proxy_page *use_between(CUdeviceptr_v2 addr, CUdeviceptr_v2 end, CUdeviceptr_v2 *next)
{
    struct proxy_page *page = NULL;
    ms_lock_acquire(MS_LOCK(PROXIES));
    size_t i = ms_ranges_place(&mappings, addr);
    if (i < mappings.count && mapping_at(i)->addr < end) {
        page = mapping_at(i)->page;
        page->uses++;
        *next = mapping_at(i)->addr + mapping_at(i)->bytes;
    }
    ms_lock_release(MS_LOCK(PROXIES));
    return page;
}

bool ms_proxies_retain(CUdeviceptr_v2 addr, bool pin, CUmemGenericAllocationHandle_v1 *handle,
                       CUresult *result)
{
    CUdeviceptr_v2 next = 0;
    struct proxy_page *page = use_between(addr, addr + 1, &next);
    if (!page) {
        return false;
    }
    struct ms_proxy_info info;
    *result =
        pin ? ms_result_from(ms_proxy_pin(page->device->pool, page->proxy, &info)) : CUDA_SUCCESS;
    ms_lock_acquire(MS_LOCK(PROXIES));
    if (*result == CUDA_SUCCESS) {
        refer_locked(page);
        *handle = page->handle;
    }
    drop_use_and_unlock(page);
    return true;
}

bool ms_proxies_pin(CUdeviceptr_v2 addr, uint64_t size)
{
    struct proxy_page *page = NULL;
    CUdeviceptr_v2 at = addr;
    CUdeviceptr_v2 end = addr + (size ? size : 1);
    bool pinned = true;
    if (atomic_load_explicit(&mappings.count, memory_order_relaxed) == 0) {
        return true;
    }
    while (pinned && at < end && (page = use_between(at, end, &at)) != NULL) {
        struct ms_proxy_info info;
        pinned = ms_proxy_pin(page->device->pool, page->proxy, &info) == MS_OK;
        drop_use(page);
    }
    return pinned;
}

/* --- names ------------------------------------------------------------------------------------ */

/* The accessible pages of one device from the one around addr on, without a gap, in one
 * reservation. */
static struct mapping_span run_locked(CUdeviceptr_v2 addr, const struct ms_reservation *range)
    MS_REQUIRES(*MS_LOCK(PROXIES))
{
    struct mapping_span run = {.first = ms_ranges_place(&mappings, addr)};
    const struct ms_device *device = NULL;
    CUdeviceptr_v2 at = addr;
    for (run.end = run.first; run.end < mappings.count; run.end++) {
        const struct proxy_mapping *mapping = mapping_at(run.end);
        if (mapping->addr > at || mapping->direct || !mapping->accessible ||
            mapping->addr >= range->addr + range->bytes ||
            (device && device != mapping->page->device)) {
            break;
        }
        device = mapping->page->device;
        at = mapping->addr + mapping->bytes;
    }
    return run;
}

uint64_t ms_proxies_named_bytes(CUdeviceptr_v2 addr)
{
    struct ms_reservation range;
    uint64_t bytes = 0;
    if (!ms_reservations_at(addr, 1, &range)) {
        return 0;
    }
    ms_lock_acquire(MS_LOCK(PROXIES));
    const struct mapping_span run = run_locked(addr, &range);
    if (run.end > run.first) {
        const struct proxy_mapping *last = mapping_at(run.end - 1);
        bytes = last->addr + last->bytes - mapping_at(run.first)->addr;
    }
    ms_lock_release(MS_LOCK(PROXIES));
    return bytes;
}

/* The pages of the run, kept until they are let go. The caller frees the list, which is null where
 * the run has a name, *out, already. */
static CUresult use_run(CUdeviceptr_v2 addr, struct ms_export_page **list, size_t *count,
                        CUipcMemHandle_v1 *out)
{
    struct ms_reservation range;
    if (!ms_reservations_at(addr, 1, &range)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    ms_lock_acquire(MS_LOCK(PROXIES));
    const struct mapping_span run = run_locked(addr, &range);
    *count = run.end - run.first;
    const CUdeviceptr_v2 begin = *count > 0 ? mapping_at(run.first)->addr : 0;
    const bool named = *count > 0 && ms_exports_find_pages(begin, *count, out);
    *list = *count > 0 && !named ? calloc(*count, sizeof **list) : NULL;
    for (size_t i = 0; i < *count && *list; i++) {
        const struct proxy_mapping *mapping = mapping_at(run.first + i);
        (*list)[i] = (struct ms_export_page){
            .page = mapping->page, .addr = mapping->addr, .bytes = mapping->bytes};
        mapping->page->uses++;
    }
    ms_lock_release(MS_LOCK(PROXIES));
    return *list || named ? CUDA_SUCCESS
           : *count > 0   ? CUDA_ERROR_OUT_OF_MEMORY
                          : CUDA_ERROR_INVALID_VALUE;
}

static ms_status_t visit_page(void *page, const struct ms_chunk_visitor *visitor)
{
    const struct proxy_page *proxy = page;
    return ms_proxy_pin_chunks(proxy->device->pool, proxy->proxy, visitor);
}

static void let_page(void *page)
{
    drop_use(page);
}

/* Whether the page is mapped still. */
static bool is_mapped_locked(const struct ms_export_page *page) MS_REQUIRES(*MS_LOCK(PROXIES))
{
    const size_t i = ms_ranges_place(&mappings, page->addr);
    return i < mappings.count && mapping_at(i)->addr == page->addr &&
           mapping_at(i)->page == page->page;
}

/* Ends the uses of pages that are not taken, but for the last use of a page, which drop_use ends.
 * False: one of all pages was unmapped meanwhile. */
static bool let_run(struct ms_export_page *list, size_t count)
{
    bool mapped = true;
    ms_lock_acquire(MS_LOCK(PROXIES));
    for (size_t i = 0; i < count; i++) {
        struct proxy_page *page = list[i].page;
        mapped = is_mapped_locked(&list[i]) && mapped;
        if (!list[i].taken && page->uses > 1) {
            page->uses--;
            list[i].page = NULL;
        }
    }
    ms_lock_release(MS_LOCK(PROXIES));
    for (size_t i = 0; i < count; i++) {
        if (!list[i].taken && list[i].page) {
            drop_use(list[i].page);
        }
    }
    return mapped;
}

/* Whether their chunks can be shared, whole or in parts. */
static bool can_share(const struct ms_device *device, const struct ms_export_page *list,
                      size_t count)
{
    bool can = atomic_load(&device->share_flag) != 0;
    for (size_t i = 0; i < count && can; i++) {
        const struct proxy_page *page = list[i].page;
        can = ((unsigned)page->prop.requestedHandleTypes &
               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
    }
    return can;
}

/* *gone: a page was unmapped meanwhile. */
static CUresult name_run(struct ms_export_page *list, size_t count, CUipcMemHandle_v1 *out,
                         bool *gone)
{
    const struct ms_export_pages pages = {list, count, visit_page, let_page};
    struct ms_device *device = ((const struct proxy_page *)list[0].page)->device;
    CUresult result = can_share(device, list, count) ? ms_exports_name_pages(device, &pages, out)
                                                     : CUDA_ERROR_NOT_SUPPORTED;
    ms_device_check_thresholds(device);
    *gone = !let_run(list, count);
    for (size_t i = 0; i < count && *gone; i++) {
        ms_lock_acquire(MS_LOCK(PROXIES));
        const bool mapped = !list[i].taken || is_mapped_locked(&list[i]);
        ms_lock_release(MS_LOCK(PROXIES));
        if (!mapped) {
            /* Whoever unmapped it may have looked before the name was there. */
            ms_exports_unmapped(list[i].addr, list[i].bytes);
        }
    }
    return result;
}

CUresult ms_proxies_name(CUdeviceptr_v2 addr, CUipcMemHandle_v1 *out)
{
    CUresult result = CUDA_SUCCESS;
    bool gone = false;
    do {
        struct ms_export_page *list = NULL;
        size_t count = 0;
        gone = false;
        result = use_run(addr, &list, &count, out);
        if (list) {
            result = name_run(list, count, out, &gone);
        }
        free(list);
    } while (result == CUDA_ERROR_INVALID_VALUE && gone);
    return result;
}
