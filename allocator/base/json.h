/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON, a value at a time. Strings may come from strangers: invalid UTF-8 becomes U+FFFD, no
 * character can end the string or the page around it, and those that a terminal would obey are
 * escaped (plain.h). */
#ifndef MEMSHIM_ALLOCATOR_BASE_JSON_H
#define MEMSHIM_ALLOCATOR_BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/buffer.h"

struct ms_json {
    struct ms_buffer *out;
    int depth;
    bool dense;   /* no line breaks */
    bool shown;   /* people see the strings as they are: escapes are \xNN (plain.h) */
    bool started; /* the open object or array has a member */
};

/* key: the member's name, null in an array and at the top. */
void ms_json_open(struct ms_json *json, const char *key, char bracket);     /* '{' or '[' */
void ms_json_close(struct ms_json *json, char bracket);                     /* '}' or ']' */
void ms_json_text(struct ms_json *json, const char *key, const char *text); /* null: null */
void ms_json_part(struct ms_json *json, const char *key, const char *text, size_t bytes);
void ms_json_count(struct ms_json *json, const char *key, uint64_t value);
void ms_json_integer(struct ms_json *json, const char *key, int64_t value);
void ms_json_flag(struct ms_json *json, const char *key, bool value);
void ms_json_null(struct ms_json *json, const char *key);

/* Writes null if the value equals `unknown`. */
void ms_json_integer_unless(struct ms_json *json, const char *key, int64_t value, int64_t unknown);

/* A number that is already valid JSON. */
void ms_json_number(struct ms_json *json, const char *key, const char *number);

#endif
