/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers strings and keeps each one once, for documents that name the same things many times. */
#ifndef MEMSHIM_ALLOCATOR_BASE_STRINGS_H
#define MEMSHIM_ALLOCATOR_BASE_STRINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "allocator/base/buffer.h"
#include "allocator/base/containers/table.h"

struct ms_strings {
    struct ms_buffer text;   /* all of them, each ended by a zero byte */
    struct ms_buffer parts;  /* struct ms_string_part, in the order of adding */
    struct ms_table numbers; /* by the texts' hashes */
};

struct ms_string_part {
    size_t start, bytes; /* in `text`, without the zero byte */
};

/* The number of these bytes: equal texts have one number, and the first one added is 0. *added (may
 * be null): whether the text is new. Without memory: 0, and `text` is marked as failed. */
size_t ms_strings_add(struct ms_strings *strings, const char *text, size_t bytes, bool *added);

void ms_strings_free(struct ms_strings *strings);

static inline size_t ms_strings_count(const struct ms_strings *strings)
{
    return strings->parts.bytes / sizeof(struct ms_string_part);
}

/* Ends with a zero byte; valid until the next is added. bytes may be null. */
const char *ms_strings_at(const struct ms_strings *strings, size_t number, size_t *bytes);

#endif
