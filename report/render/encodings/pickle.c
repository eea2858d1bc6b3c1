/* SPDX-License-Identifier: Apache-2.0 */
/* Writes values as Python's pickle does, protocol 4. */
#include "report/render/encodings/pickle.h"

#include <string.h>

#define BATCH 1000 /* items added at once: readers hold them on their stack */

/* Python's pickletools names and explains them. */
enum opcode {
    PROTO = 0x80,
    STOP = '.',
    EMPTY_DICT = '}',
    EMPTY_LIST = ']',
    MARK = '(',
    SETITEMS = 'u',
    APPENDS = 'e',
    BININT1 = 'K',
    BININT = 'J',
    LONG1 = 0x8a,
    TUPLE2 = 0x86,
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    BINUNICODE = 'X',
    MEMOIZE = 0x94,
    LONG_BINGET = 'j'
};

static void put(struct ms_pickle *pickle, enum opcode opcode)
{
    const char byte = (char)opcode;

    ms_buffer_append(pickle->out, &byte, 1);
}

static void put_bytes(struct ms_pickle *pickle, uint64_t value, size_t count)
{
    char bytes[8];

    for (size_t i = 0; i < count; i++) {
        bytes[i] = (char)(value >> (8 * i) & 0xff);
    }
    ms_buffer_append(pickle->out, bytes, count);
}

void ms_pickle_begin(struct ms_pickle *pickle, struct ms_buffer *out)
{
    memset(pickle, 0, sizeof(*pickle));
    pickle->out = out;
    put(pickle, PROTO);
    put_bytes(pickle, 4, 1);
}

void ms_pickle_end(struct ms_pickle *pickle)
{
    put(pickle, STOP);
    pickle->out->failed |= pickle->texts.text.failed || pickle->text_memos.failed;
}

void ms_pickle_free(struct ms_pickle *pickle)
{
    ms_strings_free(&pickle->texts);
    ms_buffer_free(&pickle->text_memos);
    ms_buffer_free(&pickle->text);
}

void ms_pickle_open_dict(struct ms_pickle *pickle)
{
    put(pickle, EMPTY_DICT);
    put(pickle, MARK);
}

void ms_pickle_close_dict(struct ms_pickle *pickle)
{
    put(pickle, SETITEMS);
}

void ms_pickle_open_list(struct ms_pickle *pickle, size_t *batch)
{
    *batch = 0;
    put(pickle, EMPTY_LIST);
    put(pickle, MARK);
}

void ms_pickle_next(struct ms_pickle *pickle, size_t *batch)
{
    if (*batch == BATCH) {
        put(pickle, APPENDS);
        put(pickle, MARK);
        *batch = 0;
    }
    (*batch)++;
}

void ms_pickle_close_list(struct ms_pickle *pickle)
{
    put(pickle, APPENDS);
}

void ms_pickle_number(struct ms_pickle *pickle, uint64_t value)
{
    if (value <= UINT8_MAX) {
        put(pickle, BININT1);
        put_bytes(pickle, value, 1);
    } else if (value <= INT32_MAX) {
        put(pickle, BININT);
        put_bytes(pickle, value, 4);
    } else { /* signed: eight bytes hold numbers below 2^63 */
        put(pickle, LONG1);
        put_bytes(pickle, 8, 1);
        put_bytes(pickle, value <= INT64_MAX ? value : INT64_MAX, 8);
    }
}

void ms_pickle_pair(struct ms_pickle *pickle, uint64_t first, uint64_t second)
{
    ms_pickle_number(pickle, first);
    ms_pickle_number(pickle, second);
    put(pickle, TUPLE2);
}

void ms_pickle_flag(struct ms_pickle *pickle, bool value)
{
    put(pickle, value ? NEWTRUE : NEWFALSE);
}

uint32_t ms_pickle_keep(struct ms_pickle *pickle)
{
    put(pickle, MEMOIZE);
    return pickle->memos++;
}

void ms_pickle_again(struct ms_pickle *pickle, uint32_t memo)
{
    put(pickle, LONG_BINGET);
    put_bytes(pickle, memo, 4);
}

static void add_text(struct ms_pickle *pickle, const char *text, size_t bytes)
{
    bool added;
    const size_t number = ms_strings_add(&pickle->texts, text, bytes, &added);
    uint32_t *memo;

    if (!added && number * sizeof(*memo) < pickle->text_memos.bytes) {
        ms_pickle_again(pickle, ((const uint32_t *)pickle->text_memos.at)[number]);
        return;
    }
    put(pickle, BINUNICODE);
    put_bytes(pickle, bytes, 4);
    ms_buffer_append(pickle->out, text, bytes);
    memo = added ? ms_buffer_extend(&pickle->text_memos, sizeof(*memo)) : NULL;
    if (memo) {
        *memo = ms_pickle_keep(pickle);
    }
}

void ms_pickle_word(struct ms_pickle *pickle, const char *text)
{
    add_text(pickle, text, strlen(text));
}

void ms_pickle_name(struct ms_pickle *pickle, const char *text)
{
    pickle->text.bytes = 0;
    ms_buffer_add_plain(&pickle->text, text);
    add_text(pickle, pickle->text.at ? pickle->text.at : "", pickle->text.bytes);
}

void ms_pickle_add_number(struct ms_pickle *pickle, const char *key, uint64_t value)
{
    ms_pickle_word(pickle, key);
    ms_pickle_number(pickle, value);
}

void ms_pickle_add_word(struct ms_pickle *pickle, const char *key, const char *text)
{
    ms_pickle_word(pickle, key);
    ms_pickle_word(pickle, text);
}
