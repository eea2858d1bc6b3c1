/* SPDX-License-Identifier: Apache-2.0 */
/* The hot path of adding and removing a tensor, inlined into arena.c: it computes the tensor's
 * place once, for both the index and the granules. tensors.c has the rest. */
#ifndef MEMSHIM_ALLOCATOR_ARENAS_TENSORS_HOT_H
#define MEMSHIM_ALLOCATOR_ARENAS_TENSORS_HOT_H

#include "allocator/arenas/tensors.h"
#include "allocator/backing/granules.h"
#include "allocator/space/segment.h"

/* A range's place in its segment: its first and its last byte, from the segment's base, and their
 * granules. */
struct ms_spot {
    uint64_t first, last;
    uint64_t first_slot, last_slot;
};

static inline struct ms_spot ms_spot_of(const struct ms_segment *segment, ms_addr_t addr,
                                        uint64_t bytes)
{
    const uint64_t first = addr - segment->base, last = first + bytes - 1;
    const unsigned shift = segment->granule_shift;

    return (struct ms_spot){first, last, first >> shift, last >> shift};
}

/* ---- marks: even ones at a tensor's beginning, odd ones at its last unit, so that they alternate.
 * They are numbered through the segment. Each granule has a summary with a bit for each word, or
 * for a few words if granules are large. */

static inline uint64_t ms_begin_mark(uint64_t first)
{
    return first / MS_TENSOR_UNIT_BYTES * 2;
}

static inline uint64_t ms_end_mark(uint64_t last)
{
    return last / MS_TENSOR_UNIT_BYTES * 2 + 1;
}

/* Shifts of a mark's number that give the granule, and the bit in its summary. */
static inline unsigned ms_marks_granule_shift(const struct ms_segment *segment)
{
    return segment->granule_shift - 7;
}

static inline unsigned ms_marks_bit_shift(const struct ms_segment *segment)
{
    return ms_marks_granule_shift(segment) - 8;
}

static inline void ms_mark(struct ms_segment *segment, uint64_t slot, uint64_t at)
{
    const uint64_t bit = at >> ms_marks_bit_shift(segment) & 255;

    segment->marks[at / 64] |= (uint64_t)1 << (at % 64);
    segment->granules[slot].summary[bit / 64] |= (uint64_t)1 << (bit % 64);
}

/* The summary's bit stays until a search finds nothing behind it: most tensors begin and end where
 * earlier ones did. */
static inline void ms_unmark(struct ms_segment *segment, uint64_t at)
{
    segment->marks[at / 64] &= ~((uint64_t)1 << (at % 64));
}

/* Notes the granules that the tensor reaches but does not begin in. */
static inline void ms_span(struct ms_segment *segment, const struct ms_spot *spot, bool spanned)
{
    for (uint64_t slot = spot->first_slot; slot < spot->last_slot;) {
        segment->granules[++slot].spanned = spanned;
    }
}

/* Whether a hashed tensor touches the range. */
bool ms_marks_overlap(const struct ms_segment *segment, const struct ms_spot *spot);

/* ---- the index */

static inline bool ms_tensors_hashes(const struct ms_segment *segment, ms_addr_t addr)
{
    return segment != NULL && addr % MS_TENSOR_UNIT_BYTES == 0;
}

static inline struct ms_tensor *ms_tensors_in_table(const struct ms_table *table, ms_addr_t addr)
{
    struct ms_tensor *slot = ms_table_slot(table, sizeof *slot, addr);

    return slot->addr != 0 ? slot : NULL;
}

static inline void ms_tensors_put(struct ms_table *table, const struct ms_tensor *tensor)
{
    struct ms_tensor *slot = ms_table_slot(table, sizeof *slot, tensor->addr);

    *slot = *tensor;
    table->used++;
}

/* Makes room for one more in the table, once half of it is used or while an old one is being moved.
 * False: the host is out of memory. */
bool ms_tensors_make_room(struct ms_tensors *tensors);

/* For tensors that are not hashed, or were not when they were added. */
bool ms_tensors_tree_overlap(const struct ms_tensors *tensors, ms_addr_t addr, uint64_t bytes);
ms_status_t ms_tensors_add_to_tree(struct ms_tensors *tensors, const struct ms_segment *segment,
                                   const struct ms_tensor *tensor);
bool ms_tensors_take_from_tree(struct ms_tensors *tensors, ms_addr_t addr, struct ms_tensor *out);

/* MS_ERR_INVALID: a live tensor touches its range. MS_ERR_NO_MEMORY: the host is out of memory.
 * With a segment, *spot is the place of the tensor's range. */
static inline __attribute__((always_inline)) ms_status_t
ms_tensors_add(struct ms_tensors *tensors, struct ms_segment *segment, const struct ms_spot *spot,
               const struct ms_tensor *tensor)
{
    if (tensors->tree != NULL && ms_tensors_tree_overlap(tensors, tensor->addr, tensor->bytes)) {
        return MS_ERR_INVALID;
    }
    if (__builtin_expect(!ms_tensors_hashes(segment, tensor->addr), 0)) {
        return ms_tensors_add_to_tree(tensors, segment, tensor);
    }
    const bool alone =
        spot->first_slot == spot->last_slot && segment->granules[spot->first_slot].tensors == 0;
    if (!alone && ms_marks_overlap(segment, spot)) {
        return MS_ERR_INVALID;
    }
    const bool room = tensors->table.used < tensors->table.room / 2 && tensors->old.room == 0;
    if (__builtin_expect(!room, 0) && !ms_tensors_make_room(tensors)) {
        return MS_ERR_NO_MEMORY;
    }
    ms_tensors_put(&tensors->table, tensor);
    ms_mark(segment, spot->first_slot, ms_begin_mark(spot->first));
    ms_mark(segment, spot->last_slot, ms_end_mark(spot->last));
    ms_span(segment, spot, true);
    return MS_OK;
}

/* Removes the tensor that begins at addr and copies it to *out; with a segment, *spot becomes the
 * place of its range. False: there is none. */
static inline __attribute__((always_inline)) bool
ms_tensors_take(struct ms_tensors *tensors, struct ms_segment *segment, ms_addr_t addr,
                struct ms_tensor *out, struct ms_spot *spot)
{
    struct ms_table *table = &tensors->table;
    struct ms_tensor *tensor = NULL;
    if (ms_tensors_hashes(segment, addr)) {
        tensor = ms_tensors_in_table(table, addr);
        if (tensor == NULL && tensors->old.room != 0) {
            table = &tensors->old;
            tensor = ms_tensors_in_table(table, addr);
        }
    }
    if (__builtin_expect(tensor == NULL, 0)) {
        /* Finds it even if it was allocated before its segment was known. */
        const bool found = ms_tensors_take_from_tree(tensors, addr, out);
        if (found && segment != NULL) {
            *spot = ms_spot_of(segment, addr, out->bytes);
        }
        return found;
    }
    *out = *tensor;
    ms_table_remove(table, sizeof *tensor, tensor);
    *spot = ms_spot_of(segment, addr, out->bytes);
    ms_unmark(segment, ms_begin_mark(spot->first));
    ms_unmark(segment, ms_end_mark(spot->last));
    ms_span(segment, spot, false);
    return true;
}

#endif
