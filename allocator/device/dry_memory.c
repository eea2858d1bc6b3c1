/* SPDX-License-Identifier: Apache-2.0 */
/* The dry device's memory: addresses, chunks, mappings and plain memory. It keeps the accounts that
 * a device would keep, and has no memory behind them. */
#include <stdlib.h>
#include <string.h>

#include "allocator/base/containers/pages.h"
#include "allocator/device/dry_state.h"

/* ---- addresses */

static struct dry_reservation *reservation_of(struct ms_dry *dry, ms_addr_t addr, uint64_t bytes)
{
    struct dry_reservation *at = dry->reservations;
    while (at != NULL && (addr < at->base || addr - at->base >= at->bytes)) {
        at = at->next;
    }
    if (at != NULL && bytes > at->bytes - (addr - at->base)) {
        return NULL;
    }
    return at;
}

static ms_status_t address_reserve(void *ctx, uint64_t bytes, uint64_t alignment, ms_addr_t *out)
{
    struct ms_dry *dry = ctx;
    ms_status_t status = MS_ERR_NO_MEMORY;
    ms_lock_acquire(&dry->lock);
    uint64_t granule = dry->ops.granule_bytes;
    if (granule == 0 || bytes == 0 || bytes % granule != 0 || alignment % granule != 0) {
        ms_dry_violated(dry, "reserve of %lu bytes aligned to %lu", (unsigned long)bytes,
                        (unsigned long)alignment);
        status = MS_ERR_INVALID;
    } else if (ms_dry_begin(dry, MS_DRY_ADDRESS_RESERVE, &status)) {
        struct dry_reservation *made = calloc(1, sizeof(*made));
        struct dry_slot *slots = ms_pages_map(bytes / granule * sizeof(*slots));
        if (made != NULL && slots != NULL) {
            ms_addr_t base = dry->next_addr;
            if (alignment != 0) {
                base = (base + alignment - 1) / alignment * alignment;
            }
            *made = (struct dry_reservation){
                .base = base, .bytes = bytes, .slots = slots, .next = dry->reservations};
            dry->reservations = made;
            /* A gap, so that an overrun of one reservation never lands in the next. */
            dry->next_addr = base + bytes + granule;
            dry->stats.reservations++;
            *out = base;
            status = MS_OK;
        } else {
            free(made);
        }
    }
    ms_lock_release(&dry->lock);
    return status;
}

static ms_status_t address_free(void *ctx, ms_addr_t addr, uint64_t bytes)
{
    struct ms_dry *dry = ctx;
    ms_status_t status = MS_OK;
    ms_lock_acquire(&dry->lock);
    struct dry_reservation **link = &dry->reservations;
    while (*link != NULL && (*link)->base != addr) {
        link = &(*link)->next;
    }
    struct dry_reservation *gone = *link;
    if (gone == NULL || gone->bytes != bytes || gone->mappings != 0) {
        ms_dry_violated(dry,
                        "free of addresses %#lx, %lu bytes: not a reservation, or still mapped",
                        (unsigned long)addr, (unsigned long)bytes);
        status = MS_ERR_INVALID;
    } else if (ms_dry_begin(dry, MS_DRY_ADDRESS_FREE, &status)) {
        *link = gone->next;
        ms_pages_unmap(gone->slots, bytes / dry->ops.granule_bytes * sizeof(*gone->slots));
        free(gone);
        dry->stats.reservations--;
    }
    ms_lock_release(&dry->lock);
    return status;
}

/* ---- chunks */

static struct dry_chunk *chunk_of(struct ms_dry *dry, ms_handle_t handle)
{
    if (handle == 0 || handle > dry->chunk_count) {
        return NULL;
    }
    struct dry_chunk *chunk = &dry->chunks[handle - 1];
    return chunk->bytes == 0 ? NULL : chunk;
}

/* The device's bytes beyond our own chunks and those of others. */
static uint64_t free_of(const struct ms_dry *dry)
{
    uint64_t used = dry->stats.used_bytes + dry->others_bytes;
    return dry->ops.total_bytes > used ? dry->ops.total_bytes - used : 0;
}

static ms_status_t free_bytes(void *ctx, uint64_t *out)
{
    struct ms_dry *dry = ctx;
    ms_lock_acquire(&dry->lock);
    ms_status_t status = dry->capturing ? MS_ERR_NOT_READY : MS_OK;
    *out = free_of(dry) + dry->unusable_bytes;
    ms_lock_release(&dry->lock);
    return status;
}

void ms_dry_set_others(ms_dry_t *dry, uint64_t others_bytes, uint64_t unusable_bytes)
{
    ms_lock_acquire(&dry->lock);
    dry->others_bytes = others_bytes;
    dry->unusable_bytes = unusable_bytes;
    ms_lock_release(&dry->lock);
}

static ms_status_t chunk_create(void *ctx, uint64_t bytes, enum ms_location location,
                                const void *properties, ms_handle_t *out)
{
    (void)properties;
    struct ms_dry *dry = ctx;
    ms_status_t status = MS_ERR_NO_MEMORY;
    ms_lock_acquire(&dry->lock);
    uint64_t granule = dry->ops.granule_bytes;
    if (granule == 0 || bytes == 0 || bytes % granule != 0) {
        ms_dry_violated(dry, "chunk of %lu bytes", (unsigned long)bytes);
        status = MS_ERR_INVALID;
    } else if (location == MS_LOCATION_HOST && dry->no_host) {
        status = MS_ERR_NOT_SUPPORTED;
    } else if (ms_dry_begin(dry, MS_DRY_CHUNK_CREATE, &status)) {
        bool on_device = location == MS_LOCATION_DEVICE;
        bool fits = !on_device || bytes <= free_of(dry);
        if (fits && ms_dry_room((void **)&dry->chunks, dry->chunk_count, &dry->chunk_room,
                                sizeof(*dry->chunks))) {
            dry->chunks[dry->chunk_count++] =
                (struct dry_chunk){.bytes = bytes, .location = location};
            *out = dry->chunk_count;
            dry->stats.chunks++;
            *(on_device ? &dry->stats.used_bytes : &dry->stats.host_bytes) += bytes;
            status = MS_OK;
        }
    }
    ms_lock_release(&dry->lock);
    return status;
}

/* Ends the chunk once it is released and no longer mapped. */
static void end_if_unused(struct ms_dry *dry, struct dry_chunk *chunk)
{
    if (chunk->released && chunk->mappings == 0) {
        bool on_device = chunk->location == MS_LOCATION_DEVICE;
        *(on_device ? &dry->stats.used_bytes : &dry->stats.host_bytes) -= chunk->bytes;
        dry->stats.chunks--;
        free(chunk->tags);
        chunk->tags = NULL;
        chunk->bytes = 0;
    }
}

static ms_status_t chunk_release(void *ctx, ms_handle_t handle)
{
    struct ms_dry *dry = ctx;
    ms_status_t status = MS_OK;
    ms_lock_acquire(&dry->lock);
    struct dry_chunk *chunk = chunk_of(dry, handle);
    if (chunk == NULL || chunk->released) {
        ms_dry_violated(dry, "release of chunk %lu, which is not there", (unsigned long)handle);
        status = MS_ERR_INVALID;
    } else if (ms_dry_begin(dry, MS_DRY_CHUNK_RELEASE, &status)) {
        chunk->released = true;
        end_if_unused(dry, chunk);
    }
    ms_lock_release(&dry->lock);
    return status;
}

struct dry_chunk *ms_dry_chunk_behind(struct ms_dry *dry, ms_addr_t addr, uint64_t *offset)
{
    const struct dry_reservation *in = reservation_of(dry, addr, 1);
    if (in == NULL) {
        return NULL;
    }
    uint64_t granule = dry->ops.granule_bytes;
    uint64_t slot = (addr - in->base) / granule;
    if (in->slots[slot].chunk == 0) {
        return NULL;
    }
    *offset = (addr - in->base) % granule;
    for (; !in->slots[slot].first; slot--) {
        *offset += granule;
    }
    return chunk_of(dry, in->slots[slot].chunk);
}

/* ---- mappings */

static const char *map_fault(struct ms_dry *dry, ms_addr_t addr, uint64_t bytes, ms_handle_t handle)
{
    const struct dry_chunk *chunk = chunk_of(dry, handle);
    const struct dry_reservation *in = reservation_of(dry, addr, bytes);
    uint64_t granule = dry->ops.granule_bytes;
    if (chunk == NULL || chunk->released) {
        return "no such chunk";
    }
    if (chunk->bytes != bytes) {
        return "not the whole chunk";
    }
    if (in == NULL || (addr - in->base) % granule != 0) {
        return "not in reserved addresses, or misaligned";
    }
    for (uint64_t k = 0; k < bytes / granule; k++) {
        if (in->slots[(addr - in->base) / granule + k].chunk != 0) {
            return "mapped already";
        }
    }
    return NULL;
}

static ms_status_t map(void *ctx, ms_addr_t addr, uint64_t bytes, ms_handle_t handle)
{
    struct ms_dry *dry = ctx;
    ms_status_t status = MS_OK;
    ms_lock_acquire(&dry->lock);
    const char *fault = map_fault(dry, addr, bytes, handle);
    if (fault != NULL) {
        ms_dry_violated(dry, "map at %#lx, %lu bytes, chunk %lu: %s", (unsigned long)addr,
                        (unsigned long)bytes, (unsigned long)handle, fault);
        status = MS_ERR_INVALID;
    } else if (ms_dry_begin(dry, MS_DRY_MAP, &status)) {
        uint64_t granule = dry->ops.granule_bytes;
        struct dry_reservation *in = reservation_of(dry, addr, bytes);
        for (uint64_t k = 0; k < bytes / granule; k++) {
            in->slots[(addr - in->base) / granule + k] =
                (struct dry_slot){.chunk = handle, .first = k == 0};
        }
        in->mappings++;
        dry->mapped_twice += ++chunk_of(dry, handle)->mappings == 2 ? 1 : 0;
        dry->stats.mappings++;
    }
    ms_lock_release(&dry->lock);
    return status;
}

static ms_status_t set_access(void *ctx, ms_addr_t addr, uint64_t bytes)
{
    struct ms_dry *dry = ctx;
    ms_status_t status = MS_OK;
    ms_lock_acquire(&dry->lock);
    uint64_t granule = dry->ops.granule_bytes;
    struct dry_reservation *in = reservation_of(dry, addr, bytes);
    bool mapped = in != NULL && bytes != 0 && bytes % granule == 0;
    for (uint64_t k = 0; mapped && k < bytes / granule; k++) {
        mapped = in->slots[(addr - in->base) / granule + k].chunk != 0;
    }
    if (!mapped) {
        ms_dry_violated(dry, "access to %#lx, %lu bytes, not all of it mapped", (unsigned long)addr,
                        (unsigned long)bytes);
        status = MS_ERR_INVALID;
    } else if (ms_dry_begin(dry, MS_DRY_SET_ACCESS, &status)) {
        for (uint64_t k = 0; k < bytes / granule; k++) {
            in->slots[(addr - in->base) / granule + k].access = true;
        }
    }
    ms_lock_release(&dry->lock);
    return status;
}

/* Whether the range consists of whole mappings. */
static bool whole_mappings(const struct ms_dry *dry, const struct dry_reservation *in,
                           ms_addr_t addr, uint64_t bytes)
{
    uint64_t granule = dry->ops.granule_bytes;
    if (in == NULL || bytes == 0 || bytes % granule != 0 || (addr - in->base) % granule != 0) {
        return false;
    }
    uint64_t first = (addr - in->base) / granule;
    uint64_t end = first + bytes / granule;
    for (uint64_t k = first; k < end; k++) {
        if (in->slots[k].chunk == 0) {
            return false;
        }
    }
    bool ends = end == in->bytes / granule || in->slots[end].chunk == 0 || in->slots[end].first;
    return in->slots[first].first && ends;
}

static ms_status_t unmap(void *ctx, ms_addr_t addr, uint64_t bytes)
{
    struct ms_dry *dry = ctx;
    ms_status_t status = MS_OK;
    ms_lock_acquire(&dry->lock);
    struct dry_reservation *in = reservation_of(dry, addr, bytes);
    if (!whole_mappings(dry, in, addr, bytes)) {
        ms_dry_violated(dry, "unmap at %#lx, %lu bytes: not what was mapped", (unsigned long)addr,
                        (unsigned long)bytes);
        status = MS_ERR_INVALID;
    } else if (ms_dry_begin(dry, MS_DRY_UNMAP, &status)) {
        ms_dry_check_quiet(dry, addr, bytes, "unmap");
        uint64_t granule = dry->ops.granule_bytes;
        for (uint64_t k = 0; k < bytes / granule; k++) {
            struct dry_slot *slot = &in->slots[(addr - in->base) / granule + k];
            if (slot->first) {
                struct dry_chunk *chunk = chunk_of(dry, slot->chunk);
                dry->mapped_twice -= --chunk->mappings == 1 ? 1 : 0;
                in->mappings--;
                dry->stats.mappings--;
                end_if_unused(dry, chunk);
            }
            *slot = (struct dry_slot){0};
        }
    }
    ms_lock_release(&dry->lock);
    return status;
}

/* ---- plain memory */

static ms_status_t plain_alloc(void *ctx, uint64_t bytes, ms_addr_t *out)
{
    struct ms_dry *dry = ctx;
    ms_status_t status = MS_ERR_NO_MEMORY;
    ms_lock_acquire(&dry->lock);
    if (ms_dry_begin(dry, MS_DRY_PLAIN_ALLOC, &status) && bytes <= free_of(dry)) {
        struct dry_plain *made = malloc(sizeof(*made));
        if (made != NULL) {
            *made = (struct dry_plain){.addr = dry->next_addr, .bytes = bytes, .next = dry->plains};
            dry->plains = made;
            dry->next_addr += (bytes + 4095) / 4096 * 4096 + 4096;
            dry->stats.used_bytes += bytes;
            dry->stats.plain_allocations++;
            *out = made->addr;
            status = MS_OK;
        }
    }
    ms_lock_release(&dry->lock);
    return status;
}

static ms_status_t plain_free(void *ctx, ms_addr_t addr)
{
    struct ms_dry *dry = ctx;
    ms_status_t status = MS_OK;
    ms_lock_acquire(&dry->lock);
    struct dry_plain **link = &dry->plains;
    while (*link != NULL && (*link)->addr != addr) {
        link = &(*link)->next;
    }
    struct dry_plain *gone = *link;
    if (gone == NULL) {
        ms_dry_violated(dry, "plain free of %#lx, which is not there", (unsigned long)addr);
        status = MS_ERR_INVALID;
    } else if (ms_dry_begin(dry, MS_DRY_PLAIN_FREE, &status)) {
        ms_dry_check_quiet(dry, addr, gone->bytes, "plain free");
        *link = gone->next;
        dry->stats.used_bytes -= gone->bytes;
        dry->stats.plain_allocations--;
        free(gone);
    }
    ms_lock_release(&dry->lock);
    return status;
}

bool ms_dry_is_accessible(struct ms_dry *dry, ms_addr_t addr, uint64_t bytes)
{
    for (const struct dry_plain *plain = dry->plains; plain != NULL; plain = plain->next) {
        if (addr >= plain->addr && addr - plain->addr < plain->bytes) {
            return bytes <= plain->bytes - (addr - plain->addr);
        }
    }
    const struct dry_reservation *in = reservation_of(dry, addr, bytes);
    if (in == NULL || bytes == 0) {
        return false;
    }
    uint64_t granule = dry->ops.granule_bytes;
    uint64_t last = (addr - in->base + bytes - 1) / granule;
    for (uint64_t k = (addr - in->base) / granule; k <= last; k++) {
        if (in->slots[k].chunk == 0 || !in->slots[k].access) {
            return false;
        }
    }
    return true;
}

void ms_dry_memory_fill_ops(struct ms_device_ops *ops)
{
    ops->address_reserve = address_reserve;
    ops->address_free = address_free;
    ops->chunk_create = chunk_create;
    ops->chunk_release = chunk_release;
    ops->free_bytes = free_bytes;
    ops->map = map;
    ops->set_access = set_access;
    ops->unmap = unmap;
    ops->plain_alloc = plain_alloc;
    ops->plain_free = plain_free;
}
