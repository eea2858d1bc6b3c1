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
static struct ms_export_part *parts MS_GUARDED_BY(*MS_LOCK(SHARING));
static uint64_t last_serial MS_GUARDED_BY(*MS_LOCK(SHARING));
static struct ms_share_key process; /* set before the first export is entered */

static void end(struct ms_export *export)
{
    free(export->chunks.list);
    free(export);
}

static void end_part(struct ms_export_part *part)
{
    free(part->chunks.list);
    free(part);
}

/* --- the table: SHARING ----------------------------------------------------------------------- */

/* The name of a block. */
static struct ms_export **place_of(const struct ms_device *device, CUdeviceptr_v2 addr)
{
    struct ms_export **at = &first;
    while (*at && ((*at)->device != device || (*at)->addr != addr || (*at)->made != 0)) {
        at = &(*at)->next;
    }
    return at;
}

/* Whether it is to be given back. */
static bool is_ripe(const struct ms_export *export)
{
    return export->holds == 0 && export->freed;
}

static bool part_is_ripe(const struct ms_export_part *part)
{
    return part->holds == 0 && part->died != UINT64_MAX;
}

static void note_ripe(bool before, bool now)
{
    atomic_fetch_add(&ms_exports_ripe, now && !before ? 1 : 0);
    atomic_fetch_sub(&ms_exports_ripe, before && !now ? 1 : 0);
}

/* The pages of the name are those of its range that were mapped when it was made. */
static bool covers(const struct ms_export *export, const struct ms_export_part *part)
{
    return part->page.addr >= export->addr && part->page.addr - export->addr < export->name.bytes &&
           part->born <= export->made && export->made < part->died;
}

/* The place of the first part at addr or after it. */
static struct ms_export_part **part_from(CUdeviceptr_v2 addr) MS_REQUIRES(*MS_LOCK(SHARING))
{
    struct ms_export_part **at = &parts;
    while (*at && (*at)->page.addr < addr) {
        at = &(*at)->next;
    }
    return at;
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
    struct ms_export_chunks *chunks = ctx;
    const size_t count = chunks->count;
    if ((count & (count - 1)) == 0) { /* full: the capacity is a power of two */
        const size_t room = count ? 2 * count : 1;
        struct ms_export_chunk *more = realloc(chunks->list, room * sizeof *more);
        if (!more) {
            return false;
        }
        chunks->list = more;
    }
    chunks->list[chunks->count++] = (struct ms_export_chunk){chunk, bytes};
    chunks->bytes += bytes;
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
    const struct ms_chunk_visitor visitor = {.visit = add_chunk, .ctx = &export->chunks};
    struct ms_block_info block;
    ms_status_t status =
        ms_pool_pin_chunks(export->device->pool, addr, &visitor, &block, &export->offset_bytes);
    if (status != MS_OK) {
        return ms_result_from(status);
    }
    export->block_id = block.id;
    export->addr = block.addr;
    export->whole_bytes = export->chunks.bytes;
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

/* The name of so many pages from addr on, of which none was unmapped since. */
static const struct ms_export *named_locked(CUdeviceptr_v2 addr, size_t count)
    MS_REQUIRES(*MS_LOCK(SHARING))
{
    const struct ms_export *export = first;
    while (export && (export->made == 0 || export->addr != addr || export->pages != count ||
                      export->mapped != count)) {
        export = export->next;
    }
    return export;
}

bool ms_exports_find_pages(CUdeviceptr_v2 addr, size_t count, CUipcMemHandle_v1 *out)
{
    if (atomic_load(&ms_exports_count) == 0) {
        return false;
    }
    ms_lock_acquire(MS_LOCK(SHARING));
    const struct ms_export *known = named_locked(addr, count);
    if (known) {
        memcpy(out, &known->name, sizeof known->name);
    }
    ms_lock_release(MS_LOCK(SHARING));
    return known != NULL;
}

/* The part of a page that is mapped, at its place or after it; null: it has no name. */
static struct ms_export_part **mapped_part(struct ms_export_part **at,
                                           const struct ms_export_page *page)
    MS_REQUIRES(*MS_LOCK(SHARING))
{
    while (*at && ((*at)->page.addr < page->addr ||
                   ((*at)->page.addr == page->addr && (*at)->died != UINT64_MAX))) {
        at = &(*at)->next;
    }
    return at;
}

static bool is_part_of(const struct ms_export_part *part, const struct ms_export_page *page)
{
    return part && part->page.addr == page->addr && part->page.page == page->page;
}

/* Says which of the pages have no name yet; returns how many. */
static size_t count_fresh(const struct ms_export_pages *pages)
{
    size_t fresh = 0;
    ms_lock_acquire(MS_LOCK(SHARING));
    struct ms_export_part **at = part_from(pages->list[0].addr);
    for (size_t i = 0; i < pages->count; i++) {
        at = mapped_part(at, &pages->list[i]);
        pages->list[i].taken = !is_part_of(*at, &pages->list[i]);
        fresh += pages->list[i].taken;
    }
    ms_lock_release(MS_LOCK(SHARING));
    return fresh;
}

static void end_parts(struct ms_export_part *list)
{
    while (list) {
        struct ms_export_part *part = list;
        list = part->next;
        end_part(part);
    }
}

/* Makes parts of the pages that have no name yet, in their order. */
static ms_status_t make_parts(const struct ms_export_pages *pages, struct ms_export_part **out)
{
    ms_status_t status = MS_OK;
    for (size_t i = 0; i < pages->count && status == MS_OK; i++) {
        if (!pages->list[i].taken) {
            continue;
        }
        struct ms_export_part *part = calloc(1, sizeof *part);
        if (!part) {
            return MS_ERR_NO_MEMORY;
        }
        part->page = pages->list[i];
        part->let = pages->let;
        part->died = UINT64_MAX;
        *out = part;
        out = &part->next;
        const struct ms_chunk_visitor visitor = {.visit = add_chunk, .ctx = &part->chunks};
        status = pages->visit(part->page.page, &visitor);
    }
    return status;
}

/* Whether each page still is, or can now become, a part. */
static bool all_there_locked(const struct ms_export_pages *pages) MS_REQUIRES(*MS_LOCK(SHARING))
{
    struct ms_export_part **at = part_from(pages->list[0].addr);
    bool there = true;
    for (size_t i = 0; i < pages->count && there; i++) {
        at = mapped_part(at, &pages->list[i]);
        there = pages->list[i].taken || is_part_of(*at, &pages->list[i]);
    }
    return there;
}

/* Lists the new parts, except those that another thread has listed meanwhile. */
static void list_parts_locked(const struct ms_export_pages *pages, struct ms_export_part *fresh)
    MS_REQUIRES(*MS_LOCK(SHARING))
{
    const uint64_t serial = ++last_serial;
    struct ms_export_part **at = part_from(pages->list[0].addr);
    for (size_t i = 0; i < pages->count; i++) {
        struct ms_export_page *page = &pages->list[i];
        at = mapped_part(at, page);
        struct ms_export_part *part = page->taken ? fresh : NULL; /* one for each taken page */
        if (!part) {
            continue;
        }
        fresh = part->next;
        page->taken = !is_part_of(*at, page);
        if (page->taken) {
            part->born = serial;
            part->next = *at;
            *at = part;
        } else {
            end_part(part);
        }
    }
}

/* *fresh: parts to be listed; null afterwards, if they were. */
static CUresult enter_pages(struct ms_export *export, const struct ms_export_pages *pages,
                            struct ms_export_part **fresh, CUipcMemHandle_v1 *out)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    bool listed = false;
    ms_lock_acquire(MS_LOCK(SHARING));
    if (all_there_locked(pages)) {
        const struct ms_export *known = named_locked(export->addr, pages->count);
        list_parts_locked(pages, *fresh);
        *fresh = NULL;
        listed = known == NULL; /* else another thread's counts, which was faster */
        memcpy(out, known ? &known->name : &export->name, sizeof export->name);
        result = CUDA_SUCCESS;
    }
    if (listed) {
        export->made = ++last_serial;
        list_locked(export);
    }
    ms_lock_release(MS_LOCK(SHARING));
    if (!listed) {
        end(export);
    }
    return result;
}

CUresult ms_exports_name_pages(struct ms_device *device, const struct ms_export_pages *pages,
                               CUipcMemHandle_v1 *out)
{
    struct ms_export_part *fresh = NULL;
    struct ms_export *export = calloc(1, sizeof *export);
    if (!export) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *export = (struct ms_export){.device = device,
                                 .addr = pages->list[0].addr,
                                 .whole_bytes = bytes_of(pages),
                                 .pages = pages->count,
                                 .mapped = pages->count};
    const ms_status_t status = count_fresh(pages) != 0 ? make_parts(pages, &fresh) : MS_OK;
    CUresult result = status == MS_OK ? share(export, bytes_of(pages)) : ms_result_from(status);
    if (result == CUDA_SUCCESS) {
        result = enter_pages(export, pages, &fresh, out);
    } else {
        end(export);
    }
    end_parts(fresh);
    for (size_t i = 0; i < pages->count && result != CUDA_SUCCESS; i++) {
        pages->list[i].taken = false;
    }
    return result;
}

/* ---- what an opener is given */

static size_t add_pieces(const struct ms_export_chunks *chunks, uint64_t at_bytes,
                         uint64_t from_bytes, struct ms_export_piece *out, size_t count)
{
    for (size_t i = 0; i < chunks->count && count < MS_SHARE_BATCH; i++) {
        const struct ms_export_chunk *chunk = &chunks->list[i];
        if (at_bytes >= from_bytes) {
            out[count++] = (struct ms_export_piece){chunk->handle, at_bytes, chunk->bytes};
        }
        at_bytes += chunk->bytes;
    }
    return count;
}

size_t ms_exports_pieces(const struct ms_export *export, uint64_t from_bytes,
                         struct ms_export_piece *out, uint64_t *next_bytes)
{
    size_t count = 0;
    if (export->made == 0) {
        count = add_pieces(&export->chunks, 0, from_bytes, out, 0);
    } else {
        ms_lock_acquire(MS_LOCK(SHARING));
        const struct ms_export_part *part = *part_from(export->addr);
        for (; part && part->page.addr - export->addr < export->name.bytes; part = part->next) {
            if (part->died == UINT64_MAX && covers(export, part)) {
                count = add_pieces(&part->chunks, part->page.addr - export->addr, from_bytes, out,
                                   count);
            }
        }
        ms_lock_release(MS_LOCK(SHARING));
    }
    *next_bytes = count == MS_SHARE_BATCH ? out[count - 1].at_bytes + out[count - 1].bytes
                                          : export->whole_bytes;
    return count;
}

/* ---- the end of pages */

/* All names that cover it lose a page. */
static void unmap_part_locked(struct ms_export_part *part) MS_REQUIRES(*MS_LOCK(SHARING))
{
    for (struct ms_export *export = first; export; export = export->next) {
        if (covers(export, part) && --export->mapped == 0) {
            export->freed = true;
            atomic_fetch_add(&ms_exports_kept, 1);
            note_ripe(false, is_ripe(export));
        }
    }
    part->died = ++last_serial;
    note_ripe(false, part_is_ripe(part));
}

void ms_exports_unmapped_slowly(CUdeviceptr_v2 addr, uint64_t bytes)
{
    ms_lock_acquire(MS_LOCK(SHARING));
    struct ms_export_part *part = *part_from(addr);
    for (; part && part->page.addr - addr < bytes; part = part->next) {
        if (part->died == UINT64_MAX) {
            unmap_part_locked(part);
        }
    }
    ms_lock_release(MS_LOCK(SHARING));
    ms_exports_reap();
}

/* Takes a page that was unmapped and is open nowhere; null: there is none. */
static struct ms_export_part *take_part(void)
{
    ms_lock_acquire(MS_LOCK(SHARING));
    struct ms_export_part **at = &parts;
    while (*at && !part_is_ripe(*at)) {
        at = &(*at)->next;
    }
    struct ms_export_part *part = *at;
    if (part) {
        *at = part->next;
        note_ripe(true, false);
    }
    ms_lock_release(MS_LOCK(SHARING));
    return part;
}

/* The name was opened by the first process (by 1), or closed by the last (by -1). */
static void hold_parts_locked(const struct ms_export *export, int by) MS_REQUIRES(*MS_LOCK(SHARING))
{
    struct ms_export_part *part = export->made != 0 ? *part_from(export->addr) : NULL;
    for (; part && part->page.addr - export->addr < export->name.bytes; part = part->next) {
        if (covers(export, part)) {
            const bool ripe = part_is_ripe(part);
            part->holds += (uint64_t)by;
            note_ripe(ripe, part_is_ripe(part));
        }
    }
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
    if (export && export->holds++ == 0) {
        hold_parts_locked(export, 1);
    }
    ms_lock_release(MS_LOCK(SHARING));
    return export;
}

void ms_exports_let(struct ms_export *export)
{
    ms_lock_acquire(MS_LOCK(SHARING));
    const bool last = --export->holds == 0;
    const bool over = last && !export->listed;
    if (last) {
        hold_parts_locked(export, -1);
        note_ripe(false, export->listed && is_ripe(export));
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

/* Takes an export that is freed and held by nobody off the table; null: there is none. */
static struct ms_export *take_ripe(void)
{
    ms_lock_acquire(MS_LOCK(SHARING));
    struct ms_export **at = &first;
    while (*at && !is_ripe(*at)) {
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
    struct ms_export_part *part = NULL;
    while ((part = take_part()) != NULL) {
        part->let(part->page.page);
        end_part(part);
    }
    while ((export = take_ripe()) != NULL) {
        if (export->made == 0) {
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
        if (export->device != device || export->made != 0 || is_there(device, export)) {
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
