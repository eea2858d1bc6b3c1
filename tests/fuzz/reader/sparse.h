/* SPDX-License-Identifier: Apache-2.0 */
/* A trace in few bytes: only what is not zero, so that a corpus stays small and a mutation hits
 * something. A row of struct sparse_piece, each followed by its bytes, little-endian, until the
 * input ends. The first byte before it says what is to be mended (enum sparse_flag), and in
 * multiples of SPARSE_DRAW which form is written. */
#ifndef MEMSHIM_TESTS_FUZZ_READER_SPARSE_H
#define MEMSHIM_TESTS_FUZZ_READER_SPARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"

#define SPARSE_MOST_BYTES ((size_t)24 << 18) /* of the trace: 24 extents */

enum sparse_flag {
    SPARSE_HEADER = 1,  /* magic, version, sizes and checksum of the file's header */
    SPARSE_EXTENTS = 2, /* magic, trace and checksum of each extent's header */
    SPARSE_PAYLOADS = 4 /* checksums of what the extents hold */
};

#define SPARSE_DRAW     8u
#define SPARSE_DRAW_ALL 0u /* every form */

struct sparse_piece {
    uint32_t offset, bytes;
};

/* The whole trace, mended as the input asks. False where there is no memory. */
bool sparse_expand(const uint8_t *input, size_t bytes, struct ms_buffer *trace);

/* The other way, without what a report does not need: zeros. */
void sparse_squeeze(const struct ms_buffer *trace, uint8_t flags, struct ms_buffer *output);

#endif
