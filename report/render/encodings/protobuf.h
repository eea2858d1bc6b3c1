/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of protocol buffers, written a field at a time (the wire format:
 * https://protobuf.dev/programming-guides/encoding). A nested message is built in a buffer of its
 * own and added as bytes. */
#ifndef MEMSHIM_REPORT_RENDER_ENCODINGS_PROTOBUF_H
#define MEMSHIM_REPORT_RENDER_ENCODINGS_PROTOBUF_H

#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"

/* Numbers of any integer type but those with zigzag; a field of value 0 may be left out. */
void ms_protobuf_number(struct ms_buffer *out, uint32_t field, uint64_t value);

/* A string, a message, or the numbers of a packed field (ms_varint_append). */
void ms_protobuf_bytes(struct ms_buffer *out, uint32_t field, const char *at, size_t bytes);

#endif
