/* SPDX-License-Identifier: Apache-2.0 */
/* The dry device's standstills, and its memory's contents: a tag for each unit of a chunk. A copy
 * takes effect only when somebody waits for it, so a forgotten wait shows as lost contents. */
#include <stdlib.h>
#include <string.h>

#include "allocator/device/dry_state.h"

/* The whole units of the range: they begin at *first, *count of them. */
static void units_of(ms_addr_t addr, uint64_t bytes, ms_addr_t *first, uint64_t *count)
{
    ms_addr_t end = (addr + bytes) / MS_DRY_UNIT_BYTES * MS_DRY_UNIT_BYTES;
    *first = (addr + MS_DRY_UNIT_BYTES - 1) / MS_DRY_UNIT_BYTES * MS_DRY_UNIT_BYTES;
    *count = end > *first ? (end - *first) / MS_DRY_UNIT_BYTES : 0;
}

static bool need_tags(struct dry_chunk *chunk)
{
    if (chunk->tags == NULL) {
        chunk->tags = calloc(chunk->bytes / MS_DRY_UNIT_BYTES, sizeof(*chunk->tags));
    }
    return chunk->tags != NULL;
}

/* The next part of the range that lies in one chunk: at most *count units from addr on; null: no
 * chunk is there. */
static struct dry_chunk *piece(struct ms_dry *dry, ms_addr_t addr, uint64_t *unit, uint64_t *count)
{
    uint64_t offset = 0;
    struct dry_chunk *chunk = ms_dry_chunk_behind(dry, addr, &offset);
    if (chunk != NULL) {
        uint64_t left = (chunk->bytes - offset) / MS_DRY_UNIT_BYTES;
        *unit = offset / MS_DRY_UNIT_BYTES;
        *count = left < *count ? left : *count;
    }
    return chunk;
}

void ms_dry_write(ms_dry_t *dry, ms_addr_t addr, uint64_t bytes, uint64_t tag)
{
    uint64_t left = 0;
    units_of(addr, bytes, &addr, &left);
    ms_lock_acquire(&dry->lock);
    while (left > 0) {
        uint64_t unit = 0;
        uint64_t count = left;
        struct dry_chunk *chunk = piece(dry, addr, &unit, &count);
        if (chunk == NULL || !need_tags(chunk)) {
            break;
        }
        for (uint64_t k = 0; k < count; k++) {
            chunk->tags[unit + k] = tag;
        }
        addr += count * MS_DRY_UNIT_BYTES;
        left -= count;
    }
    ms_lock_release(&dry->lock);
}

static bool holds(struct ms_dry *dry, ms_addr_t addr, uint64_t left, uint64_t tag)
{
    while (left > 0) {
        uint64_t unit = 0;
        uint64_t count = left;
        const struct dry_chunk *chunk = piece(dry, addr, &unit, &count);
        if (chunk == NULL || (chunk->tags == NULL && tag != 0)) {
            return false;
        }
        for (uint64_t k = 0; chunk->tags != NULL && k < count; k++) {
            if (chunk->tags[unit + k] != tag) {
                return false;
            }
        }
        addr += count * MS_DRY_UNIT_BYTES;
        left -= count;
    }
    return true;
}

bool ms_dry_holds(ms_dry_t *dry, ms_addr_t addr, uint64_t bytes, uint64_t tag)
{
    uint64_t left = 0;
    units_of(addr, bytes, &addr, &left);
    ms_lock_acquire(&dry->lock);
    bool same = holds(dry, addr, left, tag);
    ms_lock_release(&dry->lock);
    return same;
}

/* ---- the operations */

static ms_status_t op_halt(void *ctx, uint64_t timeout_ns)
{
    struct ms_dry *dry = ctx;
    ms_status_t status = MS_ERR_NOT_SUPPORTED;
    ms_lock_acquire(&dry->lock);
    if (dry->halted) {
        ms_dry_violated(dry, "the device is held twice");
    } else if (!dry->capturing && ms_dry_begin(dry, MS_DRY_HALT, &status)) {
        dry->halted = ms_dry_finish_all(dry, timeout_ns);
        status = dry->halted ? MS_OK : MS_ERR_NOT_READY;
    }
    ms_lock_release(&dry->lock);
    return status;
}

static void op_resume(void *ctx)
{
    struct ms_dry *dry = ctx;
    ms_lock_acquire(&dry->lock);
    if (!dry->halted || dry->copy_count != dry->copies_done) {
        ms_dry_violated(dry, "the device is let go %s",
                        dry->halted ? "while copies are under way" : "and was not held");
    }
    dry->halted = false;
    dry->copy_count = 0;
    dry->copies_done = 0;
    ms_lock_release(&dry->lock);
}

/* When the new copy will be done: after those before it. */
static uint64_t copied_at_ns(struct ms_dry *dry, ms_addr_t to_addr, uint64_t bytes)
{
    uint64_t offset = 0;
    const struct dry_chunk *to = ms_dry_chunk_behind(dry, to_addr, &offset);
    bool down = to != NULL && to->location == MS_LOCATION_HOST;
    uint64_t ns_per_mib = down ? dry->costs.down_ns_per_mib : dry->costs.up_ns_per_mib;
    uint64_t begin_ns = dry->now_ns;
    if (dry->copy_count > 0 && dry->copies[dry->copy_count - 1].done_ns > begin_ns) {
        begin_ns = dry->copies[dry->copy_count - 1].done_ns;
    }
    return begin_ns + (bytes * ns_per_mib >> 20);
}

static ms_status_t op_copy(void *ctx, ms_addr_t to, ms_addr_t from, uint64_t bytes)
{
    struct ms_dry *dry = ctx;
    ms_status_t status = MS_ERR_INVALID;
    ms_lock_acquire(&dry->lock);
    if (!dry->halted || !ms_dry_is_accessible(dry, to, bytes) ||
        !ms_dry_is_accessible(dry, from, bytes)) {
        ms_dry_violated(dry, "copy of %lu bytes from %#lx to %#lx: %s", (unsigned long)bytes,
                        (unsigned long)from, (unsigned long)to,
                        dry->halted ? "not accessible" : "the device is not held");
    } else if (ms_dry_begin(dry, MS_DRY_COPY, &status)) {
        status = MS_ERR_NO_MEMORY;
        if (ms_dry_room((void **)&dry->copies, dry->copy_count, &dry->copy_room,
                        sizeof(*dry->copies))) {
            struct dry_copy copy = {
                .to = to, .from = from, .bytes = bytes, .done_ns = copied_at_ns(dry, to, bytes)};
            dry->copies[dry->copy_count++] = copy;
            status = MS_OK;
        }
    }
    ms_lock_release(&dry->lock);
    return status;
}

/* Copies the tags of the units. Where nobody wrote any, there is nothing to copy. */
static void copy_tags(struct ms_dry *dry, const struct dry_copy *copy)
{
    uint64_t done = 0;
    while (done < copy->bytes) {
        uint64_t count = (copy->bytes - done) / MS_DRY_UNIT_BYTES;
        uint64_t from_unit = 0;
        uint64_t to_unit = 0;
        const struct dry_chunk *from = piece(dry, copy->from + done, &from_unit, &count);
        struct dry_chunk *to = piece(dry, copy->to + done, &to_unit, &count);
        if (from == NULL || to == NULL || (from->tags != NULL && !need_tags(to))) {
            return;
        }
        if (from->tags != NULL) {
            memcpy(&to->tags[to_unit], &from->tags[from_unit], count * sizeof(*to->tags));
        } else if (to->tags != NULL) {
            memset(&to->tags[to_unit], 0, count * sizeof(*to->tags));
        }
        done += count * MS_DRY_UNIT_BYTES;
    }
}

/* A copy uses the addresses as they were, mapped and accessible, when it was queued. */
static void finish_copy(struct ms_dry *dry, const struct dry_copy *copy, bool works)
{
    if (!ms_dry_is_accessible(dry, copy->to, copy->bytes) ||
        !ms_dry_is_accessible(dry, copy->from, copy->bytes)) {
        ms_dry_violated(dry, "%lu bytes were unmapped while they were copied from %#lx to %#lx",
                        (unsigned long)copy->bytes, (unsigned long)copy->from,
                        (unsigned long)copy->to);
    } else if (works) {
        copy_tags(dry, copy);
    }
    if (copy->done_ns > dry->now_ns) {
        dry->cost_ns += copy->done_ns - dry->now_ns;
        dry->now_ns = copy->done_ns;
    }
}

static ms_status_t op_copy_wait(void *ctx, uint64_t left)
{
    struct ms_dry *dry = ctx;
    ms_status_t status = MS_OK;
    ms_lock_acquire(&dry->lock);
    bool works = ms_dry_begin(dry, MS_DRY_COPY_WAIT, &status);
    while (dry->copy_count - dry->copies_done > left) {
        finish_copy(dry, &dry->copies[dry->copies_done++], works);
    }
    if (left == 0) {
        dry->copy_count = 0;
        dry->copies_done = 0;
    }
    ms_lock_release(&dry->lock);
    return status;
}

static uint64_t op_now_ns(void *ctx)
{
    return ms_dry_now_ns(ctx);
}

void ms_dry_halt_fill_ops(struct ms_device_ops *ops)
{
    ops->halt = op_halt;
    ops->resume = op_resume;
    ops->copy = op_copy;
    ops->copy_wait = op_copy_wait;
    ops->now_ns = op_now_ns;
}
