/* SPDX-License-Identifier: Apache-2.0 */
/* Writes fields of protocol buffers. */
#include "report/render/encodings/protobuf.h"

#include "allocator/base/varint.h"

#define WIRE_VARINT 0u
#define WIRE_BYTES  2u

static void add_key(struct ms_buffer *out, uint32_t field, uint32_t wire)
{
    ms_varint_append(out, (uint64_t)field << 3 | wire);
}

void ms_protobuf_number(struct ms_buffer *out, uint32_t field, uint64_t value)
{
    add_key(out, field, WIRE_VARINT);
    ms_varint_append(out, value);
}

void ms_protobuf_bytes(struct ms_buffer *out, uint32_t field, const char *at, size_t bytes)
{
    add_key(out, field, WIRE_BYTES);
    ms_varint_append(out, bytes);
    ms_buffer_append(out, at, bytes);
}
