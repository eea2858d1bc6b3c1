/* SPDX-License-Identifier: Apache-2.0 */
/* Codes structs as varints of 64-bit words, and counts runs of zeros. */
#include "report/trace/words.h"

#include <string.h>

#include "allocator/base/varint.h"

#define MOST_ZEROS (UINT64_C(1) << 32)

static uint64_t get_varint(struct ms_words_in *in)
{
    uint64_t value;
    const uint8_t *behind = ms_varint_get(in->at, in->end, &value);

    in->failed |= !behind;
    in->at = behind ? behind : in->at;
    return value;
}

/* A single zero is written as a run of one. */
void ms_words_put(struct ms_buffer *out, uint64_t word)
{
    ms_varint_append(out, word);
    if (word == 0) {
        ms_varint_append(out, 1);
    }
}

uint64_t ms_words_get(struct ms_words_in *in)
{
    if (in->zeros > 0) {
        in->zeros--;
        return 0;
    }

    const uint64_t word = in->failed ? 0 : get_varint(in);

    if (word == 0 && !in->failed) {
        const uint64_t zeros = get_varint(in);

        in->failed |= zeros == 0 || zeros > MOST_ZEROS;
        in->zeros = in->failed ? 0 : zeros - 1;
    }
    return in->failed ? 0 : word;
}

uint64_t ms_words_get_most(struct ms_words_in *in, uint64_t most)
{
    const uint64_t word = ms_words_get(in);

    in->failed |= word > most;
    return word > most ? 0 : word;
}

void ms_words_put_bytes(struct ms_buffer *out, const void *from, size_t bytes)
{
    uint64_t zeros = 0;

    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t word = 0;

        memcpy(&word, (const char *)from + at,
               bytes - at < sizeof(word) ? bytes - at : sizeof(word));
        if (word == 0) {
            zeros++;
            continue;
        }
        if (zeros > 0) {
            ms_varint_append(out, 0);
            ms_varint_append(out, zeros);
            zeros = 0;
        }
        ms_varint_append(out, word);
    }
    if (zeros > 0) {
        ms_varint_append(out, 0);
        ms_varint_append(out, zeros);
    }
}

void ms_words_get_bytes(struct ms_words_in *in, void *to, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        const uint64_t word = ms_words_get(in);

        memcpy((char *)to + at, &word, bytes - at < sizeof(word) ? bytes - at : sizeof(word));
    }
}

void ms_words_put_buffer(struct ms_buffer *out, const struct ms_buffer *from, size_t each)
{
    ms_words_put(out, from->bytes / each);
    ms_words_put_bytes(out, from->at, from->bytes);
}

void ms_words_get_buffer(struct ms_words_in *in, struct ms_buffer *to, size_t each, uint64_t most)
{
    const uint64_t count = ms_words_get_most(in, most);

    for (uint64_t i = 0; i < count && !in->failed; i++) {
        void *one = ms_buffer_extend(to, each);

        if (!one) {
            in->failed = true;
            return;
        }
        ms_words_get_bytes(in, one, each);
    }
}

void ms_words_get_unstored(struct ms_words_in *in, struct ms_buffer *to, size_t bytes)
{
    in->failed |= bytes > 0 && !ms_buffer_extend(to, bytes);
}
