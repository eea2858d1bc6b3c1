/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers frames, so that a document writes each of them once. */
#include "report/render/frame_table.h"

#include <stdint.h>
#include <string.h>

#define FIRST_SLOTS 1024

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 32);
}

static uint64_t mix_text(uint64_t hash, const char *text)
{
    for (; text && *text; text++) {
        hash = mix(hash, (unsigned char)*text);
    }
    return mix(hash, 256);
}

static uint64_t hash_of(const struct ms_frame *frame)
{
    return mix_text(
        mix_text(mix_text(mix(frame->language, frame->line), frame->function), frame->file),
        frame->module);
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same(const struct ms_frame *a, const struct ms_frame *b)
{
    return a->language == b->language && a->inlined == b->inlined && a->line == b->line &&
           same_text(a->function, b->function) && same_text(a->file, b->file) &&
           same_text(a->module, b->module);
}

/* Where the frame's number stands, or the free slot where it belongs. There is always a free one.
 */
static size_t *slot_of(const struct ms_frame_table *table, const struct ms_frame *frame)
{
    size_t *slots = (size_t *)table->slots.at;
    const size_t mask = table->slots.bytes / sizeof(*slots) - 1;
    size_t at = hash_of(frame) & mask;

    while (slots[at] && !same(ms_frame_table_at(table, slots[at] - 1), frame)) {
        at = (at + 1) & mask;
    }
    return &slots[at];
}

/* At least half of the slots stay free. */
static bool make_room(struct ms_frame_table *table)
{
    const size_t count = ms_frame_table_count(table);
    const size_t slots = table->slots.bytes / sizeof(size_t);
    struct ms_buffer old = table->slots;

    if (2 * (count + 1) <= slots) {
        return true;
    }
    table->slots = (struct ms_buffer){0};
    if (!ms_buffer_extend(&table->slots, (slots ? 2 * slots : FIRST_SLOTS) * sizeof(size_t))) {
        ms_buffer_free(&table->slots);
        table->slots = old;
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        *slot_of(table, ms_frame_table_at(table, i)) = i + 1;
    }
    ms_buffer_free(&old);
    return true;
}

size_t ms_frame_table_add(struct ms_frame_table *table, const struct ms_frame *frame)
{
    size_t *slot;
    struct ms_frame *added;

    if (!make_room(table)) {
        return 0;
    }
    slot = slot_of(table, frame);
    if (*slot) {
        return *slot - 1;
    }
    added = ms_buffer_extend(&table->frames, sizeof(*added));
    if (!added) {
        return 0;
    }
    *added = *frame;
    *slot = ms_frame_table_count(table);
    return *slot - 1;
}

void ms_frame_table_free(struct ms_frame_table *table)
{
    ms_buffer_free(&table->frames);
    ms_buffer_free(&table->slots);
}
