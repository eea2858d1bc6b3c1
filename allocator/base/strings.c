/* SPDX-License-Identifier: Apache-2.0 */
/* Strings, each kept once, by number. */
#include "allocator/base/strings.h"

#include <stdint.h>
#include <string.h>

struct string_entry {
    uint64_t hash; /* not 0 */
    size_t number;
};

static uint64_t hash_of(const char *text, size_t bytes)
{
    uint64_t hash = bytes;

    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return hash != 0 ? hash : 1;
}

const char *ms_strings_at(const struct ms_strings *strings, size_t number, size_t *bytes)
{
    const struct ms_string_part *part = (const struct ms_string_part *)strings->parts.at + number;

    if (bytes) {
        *bytes = part->bytes;
    }
    return strings->text.at + part->start;
}

/* The text's entry, or the free slot where it belongs. */
static struct string_entry *entry_of(const struct ms_strings *strings, const char *text,
                                     size_t bytes, uint64_t hash)
{
    struct string_entry *entry = ms_table_slot(&strings->numbers, sizeof(*entry), hash);

    while (entry->hash != 0) {
        size_t other_bytes;
        const char *other = ms_strings_at(strings, entry->number, &other_bytes);

        if (other_bytes == bytes && memcmp(other, text, bytes) == 0) {
            break;
        }
        entry = ms_table_next(&strings->numbers, sizeof(*entry), entry);
    }
    return entry;
}

size_t ms_strings_add(struct ms_strings *strings, const char *text, size_t bytes, bool *added)
{
    const uint64_t hash = hash_of(text, bytes);
    const size_t start = strings->text.bytes;
    struct ms_string_part *part;
    struct string_entry *entry;
    char *to;

    if (added) {
        *added = false;
    }
    if (!ms_table_reserve(&strings->numbers, sizeof(*entry))) {
        strings->text.failed = true;
        return 0;
    }
    entry = entry_of(strings, text, bytes, hash);
    if (entry->hash != 0) {
        return entry->number;
    }
    to = ms_buffer_extend(&strings->text, bytes + 1);
    part = to ? ms_buffer_extend(&strings->parts, sizeof(*part)) : NULL;
    if (!part) {
        strings->text.failed = true;
        return 0;
    }
    memcpy(to, text, bytes);
    to[bytes] = '\0';
    *part = (struct ms_string_part){start, bytes};
    ms_table_enter(&strings->numbers, entry, hash);
    entry->number = ms_strings_count(strings) - 1;
    if (added) {
        *added = true;
    }
    return entry->number;
}

void ms_strings_free(struct ms_strings *strings)
{
    ms_buffer_free(&strings->text);
    ms_buffer_free(&strings->parts);
    ms_table_free(&strings->numbers, sizeof(struct string_entry));
}
