/* SPDX-License-Identifier: Apache-2.0 */
/* JSON, written a value at a time. Every string may be a stranger's: what is not UTF-8 becomes
 * U+FFFD, nothing in it can end the string or a page that holds it, and a terminal that shows the
 * JSON shows it as it is (plain.h). */
#ifndef MEMSHIM_ALLOCATOR_BASE_JSON_H
#define MEMSHIM_ALLOCATOR_BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/buffer.h"

struct ms_json {
    struct ms_buffer *out;
    int depth;
    bool dense;   /* no line breaks */
    bool shown;   /* what strings say is for people, as it is: they say \xNN (plain.h) */
    bool started; /* the open object or array has a member already */
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

/* null where the value is the one that stands for not known. */
void ms_json_integer_unless(struct ms_json *json, const char *key, int64_t value, int64_t unknown);

/* A number that is already written as JSON wants it. */
void ms_json_number(struct ms_json *json, const char *key, const char *number);

#endif
