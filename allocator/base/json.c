/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON writer: commas, escapes and nesting. */
#include "allocator/base/json.h"

#include <inttypes.h>
#include <string.h>

#include "allocator/base/plain.h"

static bool is_plain(char letter)
{
    const unsigned char byte = (unsigned char)letter;

    return byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\' && byte != '<' &&
           byte != '>' && byte != '&';
}

/* One character that is no plain ASCII; returns the bytes taken. */
static size_t add_character(const struct ms_json *json, const char *text, size_t bytes)
{
    struct ms_buffer *out = json->out;
    unsigned point;
    size_t length = ms_utf8_length(text, &point);
    const bool whole = length > 0 && length <= bytes;
    const bool hidden = !whole || (!ms_is_plain(point) && point != '\n' && point != '\t');

    if (json->shown && hidden) {
        ms_buffer_format(out, "\\\\x%02x", (unsigned char)*text);
        length = 1;
    } else if (!whole) {
        ms_buffer_add(out, "\\ufffd");
        length = 1;
    } else if (point >= 0x10000 && hidden) {
        ms_buffer_format(out, "\\u%04x\\u%04x", 0xd7c0 + (point >> 10), 0xdc00 + (point & 0x3ff));
    } else if (point < 0x80 || hidden) {
        ms_buffer_format(out, "\\u%04x", point);
    } else {
        ms_buffer_append(out, text, length);
    }
    return length;
}

static void add_string(const struct ms_json *json, const char *text, size_t bytes)
{
    struct ms_buffer *out = json->out;
    const char *end = text + bytes;

    ms_buffer_add(out, "\"");
    while (text < end) {
        const char *plain = text;

        while (text < end && is_plain(*text)) {
            text++;
        }
        ms_buffer_append(out, plain, (size_t)(text - plain));
        if (text < end) {
            text += add_character(json, text, (size_t)(end - text));
        }
    }
    ms_buffer_add(out, "\"");
}

static void add_break(struct ms_json *json)
{
    if (json->dense) {
        return;
    }
    ms_buffer_add(json->out, "\n");
    for (int i = 0; i < json->depth; i++) {
        ms_buffer_add(json->out, "  ");
    }
}

static void begin_member(struct ms_json *json, const char *key)
{
    if (json->started) {
        ms_buffer_add(json->out, ",");
    }
    if (json->depth > 0) {
        add_break(json);
    }
    json->started = true;
    if (key) {
        add_string(json, key, strlen(key));
        ms_buffer_add(json->out, json->dense ? ":" : ": ");
    }
}

void ms_json_open(struct ms_json *json, const char *key, char bracket)
{
    begin_member(json, key);
    ms_buffer_append(json->out, &bracket, 1);
    json->depth++;
    json->started = false;
}

void ms_json_close(struct ms_json *json, char bracket)
{
    json->depth--;
    if (json->started) {
        add_break(json);
    }
    ms_buffer_append(json->out, &bracket, 1);
    json->started = true;
}

void ms_json_text(struct ms_json *json, const char *key, const char *text)
{
    if (!text) {
        ms_json_null(json, key);
        return;
    }
    ms_json_part(json, key, text, strlen(text));
}

void ms_json_part(struct ms_json *json, const char *key, const char *text, size_t bytes)
{
    begin_member(json, key);
    add_string(json, text, bytes);
}

void ms_json_count(struct ms_json *json, const char *key, uint64_t value)
{
    begin_member(json, key);
    ms_buffer_format(json->out, "%" PRIu64, value);
}

void ms_json_integer(struct ms_json *json, const char *key, int64_t value)
{
    begin_member(json, key);
    ms_buffer_format(json->out, "%" PRId64, value);
}

void ms_json_flag(struct ms_json *json, const char *key, bool value)
{
    begin_member(json, key);
    ms_buffer_add(json->out, value ? "true" : "false");
}

void ms_json_null(struct ms_json *json, const char *key)
{
    begin_member(json, key);
    ms_buffer_add(json->out, "null");
}

void ms_json_integer_unless(struct ms_json *json, const char *key, int64_t value, int64_t unknown)
{
    if (value == unknown) {
        ms_json_null(json, key);
    } else {
        ms_json_integer(json, key, value);
    }
}

void ms_json_number(struct ms_json *json, const char *key, const char *number)
{
    begin_member(json, key);
    ms_buffer_add(json->out, number);
}
