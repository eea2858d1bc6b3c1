/* SPDX-License-Identifier: Apache-2.0 */
/* Structs as a stream of 64-bit words, each as a varint, rows of zeros as their number: what the
 * digest of a trace (digest.h) is made of. A reader that has met something wrong gives zeros from
 * then on and says so in `failed`: it can be asked once, at the end. */
#ifndef MEMSHIM_REPORT_TRACE_WORDS_H
#define MEMSHIM_REPORT_TRACE_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"

struct ms_words_in {
    const uint8_t *at, *end;
    uint64_t zeros; /* of a row of them that are still to come */
    bool failed;
};

void ms_words_put(struct ms_buffer *out, uint64_t word);
uint64_t ms_words_get(struct ms_words_in *in);

/* A number that is no more than `most`; another one is something wrong, and reads as 0. */
uint64_t ms_words_get_most(struct ms_words_in *in, uint64_t most);

/* `bytes` bytes, of any struct: the last word may be part of one. */
void ms_words_put_bytes(struct ms_buffer *out, const void *from, size_t bytes);
void ms_words_get_bytes(struct ms_words_in *in, void *to, size_t bytes);

/* A buffer of structs of `each` bytes: their number, then they. most: the largest number taken. */
void ms_words_put_buffer(struct ms_buffer *out, const struct ms_buffer *from, size_t each);
void ms_words_get_buffer(struct ms_words_in *in, struct ms_buffer *to, size_t each, uint64_t most);

#endif
