/* SPDX-License-Identifier: Apache-2.0 */
/* Strings, each kept once, by number. */
#include "allocator/base/strings.h"

#include <stdint.h>
#include <string.h>

#define FIRST_SLOTS 1024

static uint64_t hash_of(const char *text, size_t bytes)
{
    uint64_t hash = bytes;

    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return hash;
}

const char *ms_strings_at(const struct ms_strings *strings, size_t number, size_t *bytes)
{
    const struct ms_string_part *part = (const struct ms_string_part *)strings->parts.at + number;

    if (bytes) {
        *bytes = part->bytes;
    }
    return strings->text.at + part->start;
}

/* Where the text's number stands, or the free slot where it belongs. There is always a free one. */
static size_t *slot_of(const struct ms_strings *strings, const char *text, size_t bytes)
{
    size_t *slots = (size_t *)strings->slots.at;
    const size_t mask = strings->slots.bytes / sizeof(*slots) - 1;
    size_t at = hash_of(text, bytes) & mask;

    for (; slots[at]; at = (at + 1) & mask) {
        size_t other_bytes;
        const char *other = ms_strings_at(strings, slots[at] - 1, &other_bytes);

        if (other_bytes == bytes && memcmp(other, text, bytes) == 0) {
            break;
        }
    }
    return &slots[at];
}

/* At least half of the slots stay free. */
static bool make_room(struct ms_strings *strings)
{
    const size_t count = ms_strings_count(strings);
    const size_t slots = strings->slots.bytes / sizeof(size_t);
    struct ms_buffer old = strings->slots;

    if (2 * (count + 1) <= slots) {
        return true;
    }
    strings->slots = (struct ms_buffer){0};
    if (!ms_buffer_extend(&strings->slots, (slots ? 2 * slots : FIRST_SLOTS) * sizeof(size_t))) {
        ms_buffer_free(&strings->slots);
        strings->slots = old;
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        size_t bytes;
        const char *text = ms_strings_at(strings, i, &bytes);

        *slot_of(strings, text, bytes) = i + 1;
    }
    ms_buffer_free(&old);
    return true;
}

size_t ms_strings_add(struct ms_strings *strings, const char *text, size_t bytes, bool *added)
{
    const size_t start = strings->text.bytes;
    struct ms_string_part *part;
    size_t *slot;
    char *to;

    if (added) {
        *added = false;
    }
    if (!make_room(strings)) {
        strings->text.failed = true;
        return 0;
    }
    slot = slot_of(strings, text, bytes);
    if (*slot) {
        return *slot - 1;
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
    *slot = ms_strings_count(strings);
    if (added) {
        *added = true;
    }
    return *slot - 1;
}

void ms_strings_free(struct ms_strings *strings)
{
    ms_buffer_free(&strings->text);
    ms_buffer_free(&strings->parts);
    ms_buffer_free(&strings->slots);
}
