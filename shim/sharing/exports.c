/* SPDX-License-Identifier: Apache-2.0 */
/* The table of blocks and pages that other processes may open. */
#include "shim/sharing/exports.h"

#include <stdlib.h>
#include <string.h>

#include "allocator/base/cancel.h"
#include "allocator/base/locks/lock.h"
#include "shim/driver/driver.h"
#include "shim/sharing/export_table.h"

_Atomic unsigned ms_exports_count;
_Atomic unsigned ms_exports_kept;
_Atomic unsigned ms_exports_ripe;

static struct ms_export *first MS_GUARDED_BY(*MS_LOCK(SHARING));
static struct ms_share_key process; /* set before the first export is entered */

static void end(struct ms_export *export)
{
    free(export->chunks);
    free(export->parts);
    free(export);
}

/* --- the table: SHARING ----------------------------------------------------------------------- */

/* The name of a block. */
static struct ms_export **place_of(const struct ms_device *device, CUdeviceptr_v2 addr)
{
    struct ms_export **at = &first;
    while (*at && ((*at)->device != device || (*at)->addr != addr || (*at)->part_count != 0)) {
        at = &(*at)->next;
    }
    return at;
}

/* Whether something of it is to be given back. */
static bool is_ripe(const struct ms_export *export)
{
    return export->holds == 0 && (export->freed || export->unmapped != 0);
}

static void note_ripe(const struct ms_export *export, bool before)
{
    const bool now = is_ripe(export);
    atomic_fetch_add(&ms_exports_ripe, now && !before ? 1 : 0);
    atomic_fetch_sub(&ms_exports_ripe, before && !now ? 1 : 0);
}

/* Takes it off the table. Its last holder frees it. */
static void unlist_locked(struct ms_export **at)
{
    struct ms_export *export = *at;
    *at = export->next;
    export->listed = false;
    atomic_fetch_sub(&ms_exports_count, 1);
    atomic_fetch_sub(&ms_exports_kept, export->freed ? 1 : 0);
    atomic_fetch_sub(&ms_exports_ripe, is_ripe(export) ? 1 : 0);
}

/* --- names ------------------------------------------------------------------------------------ */

static bool add_chunk(void *ctx, ms_handle_t chunk, uint64_t bytes)
{
    struct ms_export *export = ctx;
    const size_t count = export->chunk_count;
    if ((count & (count - 1)) == 0) { /* full: the capacity is a power of two */
        const size_t room = count ? 2 * count : 1;
        struct ms_export_chunk *more = realloc(export->chunks, room * sizeof *more);
        if (!more) {
            return false;
        }
        export->chunks = more;
    }
    export->chunks[export->chunk_count++] =
        (struct ms_export_chunk){chunk, bytes, export->part_count};
    export->whole_bytes += bytes;
    return true;
}

static CUresult share(struct ms_export *export, uint64_t bytes)
{
    const int cancellation = ms_cancel_hold();
    const bool shared = ms_listener_start(&process) && ms_share_key_make(&export->name.block);
    ms_cancel_let(cancellation);
    memcpy(export->name.magic, MS_SHARE_MAGIC, sizeof export->name.magic);
    export->name.process = process;
    export->name.bytes = bytes;
    memcpy(export->name.uuid, export->device->uuid, sizeof export->name.uuid);
    return shared ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

static CUresult describe(struct ms_export *export, CUdeviceptr_v2 addr)
{
    const struct ms_chunk_visitor visitor = {.visit = add_chunk, .ctx = export};
    struct ms_block_info block;
    ms_status_t status =
        ms_pool_pin_chunks(export->device->pool, addr, &visitor, &block, &export->offset_bytes);
    if (status != MS_OK) {
        return ms_result_from(status);
    }
    export->block_id = block.id;
    export->addr = block.addr;
    return share(export, block.bytes);
}

static void list_locked(struct ms_export *export) MS_REQUIRES(*MS_LOCK(SHARING))
{
    export->next = first;
    export->listed = true;
    first = export;
    atomic_fetch_add(&ms_exports_count, 1);
}

/* If another thread named the same block meanwhile, that name counts. */
static struct ms_share_name enter(struct ms_export *export)
{
    ms_lock_acquire(MS_LOCK(SHARING));
    struct ms_export **at = place_of(export->device, export->addr);
    struct ms_export *other = *at && (*at)->block_id == export->block_id ? *at : NULL;
    if (!other) {
        list_locked(export);
    }
    struct ms_share_name name = other ? other->name : export->name;
    ms_lock_release(MS_LOCK(SHARING));
    if (other) {
        end(export);
    }
    return name;
}

static bool find(const struct ms_device *device, const struct ms_block_info *block,
                 struct ms_share_name *out)
{
    ms_lock_acquire(MS_LOCK(SHARING));
    const struct ms_export *export = *place_of(device, block->addr);
    bool found = export && export->block_id == block->id && !export->freed;
    if (found) {
        *out = export->name;
    }
    ms_lock_release(MS_LOCK(SHARING));
    return found;
}

CUresult ms_exports_name(struct ms_device *device, CUdeviceptr_v2 addr, CUipcMemHandle_v1 *out)
{
    struct ms_block_info block;
    struct ms_share_name name;
    if (ms_pool_find(device->pool, addr, &block) != MS_OK) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!find(device, &block, &name)) {
        if (atomic_load(&device->share_flag) != 1) {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        struct ms_export *export = calloc(1, sizeof *export);
        if (!export) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        export->device = device;
        CUresult result = describe(export, addr);
        if (result != CUDA_SUCCESS) {
            end(export);
            return result;
        }
        name = enter(export);
    }
    memcpy(out, &name, sizeof name);
    return CUDA_SUCCESS;
}

/* --- pages ------------------------------------------------------------------------------------ */

static uint64_t bytes_of(const struct ms_export_pages *pages)
{
    const struct ms_export_page *last = &pages->list[pages->count - 1];
    return last->addr + last->bytes - pages->list[0].addr;
}

/* The name of all these pages, of which none was unmapped since. */
static const struct ms_export *find_pages_locked(const struct ms_device *device,
                                                 const struct ms_export_pages *pages)
    MS_REQUIRES(*MS_LOCK(SHARING))
{
    const struct ms_export *export = first;
    while (export &&
           (export->part_count != pages->count || export->device != device ||
            export->addr != pages->list[0].addr || export->name.bytes != bytes_of(pages) ||
            export->unmapped != 0 || export->let_go != 0)) {
        export = export->next;
    }
    return export;
}

static CUresult describe_pages(struct ms_export *export, const struct ms_export_pages *pages)
{
    const struct ms_chunk_visitor visitor = {.visit = add_chunk, .ctx = export};
    export->parts = calloc(pages->count, sizeof *export->parts);
    export->let = pages->let;
    export->addr = pages->list[0].addr;
    if (!export->parts) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < pages->count; i++) {
        const ms_status_t status = pages->visit(pages->list[i].page, &visitor);
        if (status != MS_OK) {
            return ms_result_from(status);
        }
        export->parts[i].page = pages->list[i];
        export->part_count = i + 1;
    }
    return share(export, bytes_of(pages));
}

CUresult ms_exports_name_pages(struct ms_device *device, const struct ms_export_pages *pages,
                               CUipcMemHandle_v1 *out, bool *taken)
{
    *taken = false;
    ms_lock_acquire(MS_LOCK(SHARING));
    const struct ms_export *known = find_pages_locked(device, pages);
    if (known) {
        memcpy(out, &known->name, sizeof known->name);
    }
    ms_lock_release(MS_LOCK(SHARING));
    if (known) {
        return CUDA_SUCCESS;
    }
    struct ms_export *export = calloc(1, sizeof *export);
    if (!export) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    export->device = device;
    CUresult result = describe_pages(export, pages);
    if (result == CUDA_SUCCESS) {
        ms_lock_acquire(MS_LOCK(SHARING));
        known = find_pages_locked(device, pages); /* another thread's counts, if it was faster */
        *taken = known == NULL;
        memcpy(out, known ? &known->name : &export->name, sizeof export->name);
        if (*taken) {
            list_locked(export);
        }
        ms_lock_release(MS_LOCK(SHARING));
    }
    if (!*taken) {
        end(export);
    }
    return result;
}

uint64_t ms_exports_gaps(const struct ms_export *export, size_t first_chunk, size_t count)
{
    uint64_t gaps = 0;
    ms_lock_acquire(MS_LOCK(SHARING));
    for (size_t i = 0; i < count && export->part_count != 0; i++) {
        const size_t page = export->chunks[first_chunk + i].page;
        gaps |= (uint64_t)(export->parts[page].state != MS_PART_MAPPED) << i;
    }
    ms_lock_release(MS_LOCK(SHARING));
    return gaps;
}

static void unmap_parts_locked(struct ms_export *export, CUdeviceptr_v2 addr, uint64_t bytes)
{
    const bool ripe = is_ripe(export);
    for (size_t i = 0; i < export->part_count; i++) {
        struct ms_export_part *part = &export->parts[i];
        if (part->state == MS_PART_MAPPED && part->page.addr >= addr &&
            part->page.addr - addr < bytes) {
            part->state = MS_PART_UNMAPPED;
            export->unmapped++;
        }
    }
    if (!export->freed && export->unmapped + export->let_go == export->part_count) {
        export->freed = true;
        atomic_fetch_add(&ms_exports_kept, 1);
    }
    note_ripe(export, ripe);
}

void ms_exports_unmapped_slowly(const struct ms_device *device, CUdeviceptr_v2 addr, uint64_t bytes)
{
    ms_lock_acquire(MS_LOCK(SHARING));
    for (struct ms_export *export = first; export; export = export->next) {
        if (export->part_count != 0 && export->device == device) {
            unmap_parts_locked(export, addr, bytes);
        }
    }
    ms_lock_release(MS_LOCK(SHARING));
    ms_exports_reap();
}

/* Takes a page that was unmapped and is open nowhere; false: there is none. */
static bool take_page(void **page, void (**let)(void *))
{
    bool found = false;
    ms_lock_acquire(MS_LOCK(SHARING));
    struct ms_export *export = first;
    while (export && !(export->holds == 0 && export->unmapped != 0)) {
        export = export->next;
    }
    for (size_t i = 0; export && i < export->part_count && !found; i++) {
        struct ms_export_part *part = &export->parts[i];
        found = part->state == MS_PART_UNMAPPED;
        if (found) {
            *page = part->page.page;
            *let = export->let;
            part->state = MS_PART_LET;
            export->let_go++;
            export->unmapped--;
            note_ripe(export, true);
        }
    }
    ms_lock_release(MS_LOCK(SHARING));
    return found;
}

/* --- all names -------------------------------------------------------------------------------- */

bool ms_exports_own(const CUipcMemHandle_v1 *handle)
{
    struct ms_share_name name;
    memcpy(&name, handle, sizeof name);
    return atomic_load(&ms_exports_count) != 0 && ms_share_key_equal(&name.process, &process);
}

/* --- holds ------------------------------------------------------------------------------------ */

struct ms_export *ms_exports_hold(const struct ms_share_key *block)
{
    ms_lock_acquire(MS_LOCK(SHARING));
    struct ms_export *export = first;
    while (export && !ms_share_key_equal(&export->name.block, block)) {
        export = export->next;
    }
    if (export && export->freed) {
        export = NULL;
    }
    if (export) {
        const bool ripe = is_ripe(export);
        export->holds++;
        note_ripe(export, ripe);
    }
    ms_lock_release(MS_LOCK(SHARING));
    return export;
}

void ms_exports_let(struct ms_export *export)
{
    ms_lock_acquire(MS_LOCK(SHARING));
    const bool last = --export->holds == 0;
    const bool over = last && !export->listed;
    if (export->listed) {
        note_ripe(export, false);
    }
    ms_lock_release(MS_LOCK(SHARING));
    if (over) {
        end(export);
    }
}

/* --- the end of blocks ------------------------------------------------------------------------ */

enum ms_exports_free ms_exports_freed_slowly(const struct ms_device *device, CUdeviceptr_v2 addr)
{
    enum ms_exports_free answer = MS_EXPORTS_NOW;
    ms_lock_acquire(MS_LOCK(SHARING));
    struct ms_export **at = place_of(device, addr);
    struct ms_export *export = *at;
    if (export && export->freed) {
        answer = MS_EXPORTS_TWICE;
    } else if (export && export->holds != 0) {
        export->freed = true;
        atomic_fetch_add(&ms_exports_kept, 1);
        answer = MS_EXPORTS_LATER;
    } else if (export) {
        unlist_locked(at);
    }
    ms_lock_release(MS_LOCK(SHARING));
    if (export && answer == MS_EXPORTS_NOW) {
        end(export);
    }
    return answer;
}

bool ms_exports_keep_slowly(const struct ms_device *device, CUdeviceptr_v2 addr)
{
    ms_lock_acquire(MS_LOCK(SHARING));
    const struct ms_export *export = *place_of(device, addr);
    const bool keep = export && export->freed;
    ms_lock_release(MS_LOCK(SHARING));
    return keep;
}

/* Takes an export that is freed and held by nobody off the table; null: there is none. Its pages
 * were let go before. */
static struct ms_export *take_ripe(void)
{
    ms_lock_acquire(MS_LOCK(SHARING));
    struct ms_export **at = &first;
    while (*at && !((*at)->freed && (*at)->holds == 0 && (*at)->unmapped == 0)) {
        at = &(*at)->next;
    }
    struct ms_export *export = *at;
    if (export) {
        unlist_locked(at);
    }
    ms_lock_release(MS_LOCK(SHARING));
    return export;
}

void ms_exports_reap_slowly(void)
{
    struct ms_export *export = NULL;
    void *page = NULL;
    void (*let)(void *) = NULL;
    while (take_page(&page, &let)) {
        let(page);
    }
    while ((export = take_ripe()) != NULL) {
        if (export->part_count == 0) {
            (void)ms_pool_free(export->device->pool, export->addr, MS_STREAM_DEVICE);
            ms_device_check_thresholds(export->device);
        }
        end(export);
    }
}

static bool is_there(struct ms_device *device, const struct ms_export *export)
{
    struct ms_block_info block;
    return ms_pool_find(device->pool, export->addr, &block) == MS_OK &&
           block.id == export->block_id;
}

void ms_exports_prune(struct ms_device *device)
{
    ms_lock_acquire(MS_LOCK(SHARING));
    struct ms_export **at = &first;
    while (*at) {
        struct ms_export *export = *at;
        /* Pages do not go with a context (cuda.h). */
        if (export->device != device || export->part_count != 0 || is_there(device, export)) {
            at = &export->next;
            continue;
        }
        unlist_locked(at);
        if (export->holds == 0) {
            end(export);
        }
    }
    ms_lock_release(MS_LOCK(SHARING));
}
