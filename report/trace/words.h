/* SPDX-License-Identifier: Apache-2.0 */
/* Codes structs as a stream of 64-bit words, each a varint, and runs of zeros by their number. The
 * digest of a trace (digest.h) uses it. After a reader meets bad data it returns zeros and sets
 * `failed`, so that the caller can check once, at the end. */
#ifndef MEMSHIM_REPORT_TRACE_WORDS_H
#define MEMSHIM_REPORT_TRACE_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"

struct ms_words_in {
    const uint8_t *at, *end;
    uint64_t zeros; /* of a run: those still to come */
    bool failed;
};

void ms_words_put(struct ms_buffer *out, uint64_t word);
uint64_t ms_words_get(struct ms_words_in *in);

/* Reads a number of at most `most`; a larger one is bad data, and reads as 0. */
uint64_t ms_words_get_most(struct ms_words_in *in, uint64_t most);

/* Writes `bytes` bytes of any struct; the last word may be partial. */
void ms_words_put_bytes(struct ms_buffer *out, const void *from, size_t bytes);
void ms_words_get_bytes(struct ms_words_in *in, void *to, size_t bytes);

/* A buffer of structs of `each` bytes: their number, then the structs. most: the largest number
 * accepted. */
void ms_words_put_buffer(struct ms_buffer *out, const struct ms_buffer *from, size_t each);
void ms_words_get_buffer(struct ms_words_in *in, struct ms_buffer *to, size_t each, uint64_t most);
/* Adds zeros for what a digest does not have. */
void ms_words_get_unstored(struct ms_words_in *in, struct ms_buffer *to, size_t bytes);

#endif
