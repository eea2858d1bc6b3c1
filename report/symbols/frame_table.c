/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers frames, so that a document writes each of them once. */
#include "report/symbols/frame_table.h"

#include <stdint.h>
#include <string.h>

struct frame_entry {
    uint64_t hash; /* not 0 */
    size_t number;
};

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
    const uint64_t hash = mix_text(
        mix_text(mix_text(mix(frame->language, frame->line), frame->function), frame->file),
        frame->module);

    return hash != 0 ? hash : 1;
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

/* The frame's entry, or the free slot where it belongs. */
static struct frame_entry *entry_of(const struct ms_frame_table *table,
                                    const struct ms_frame *frame, uint64_t hash)
{
    struct frame_entry *entry = ms_table_slot(&table->numbers, sizeof(*entry), hash);

    while (entry->hash != 0 && !same(ms_frame_table_at(table, entry->number), frame)) {
        entry = ms_table_next(&table->numbers, sizeof(*entry), entry);
    }
    return entry;
}

size_t ms_frame_table_add(struct ms_frame_table *table, const struct ms_frame *frame)
{
    const uint64_t hash = hash_of(frame);
    struct frame_entry *entry;
    struct ms_frame *added;

    if (!ms_table_reserve(&table->numbers, sizeof(*entry))) {
        return 0;
    }
    entry = entry_of(table, frame, hash);
    if (entry->hash != 0) {
        return entry->number;
    }
    added = ms_buffer_extend(&table->frames, sizeof(*added));
    if (!added) {
        return 0;
    }
    *added = *frame;
    ms_table_enter(&table->numbers, entry, hash);
    entry->number = ms_frame_table_count(table) - 1;
    return entry->number;
}

void ms_frame_table_free(struct ms_frame_table *table)
{
    ms_buffer_free(&table->frames);
    ms_table_free(&table->numbers, sizeof(struct frame_entry));
}
