/* SPDX-License-Identifier: Apache-2.0 */
/* A trace in few bytes. See sparse.h. */
#include "sparse.h"

#include <string.h>

#include "allocator/base/checksum.h"
#include "report/fold/digest.h"
#include "report/trace/format.h"

#define GAP_BYTES 16u /* zeros that are worth a new piece */

static void mend_header(struct ms_file_header *header)
{
    memcpy(header->magic, MS_FORMAT_MAGIC, sizeof(header->magic));
    header->byte_order = MS_BYTE_ORDER;
    header->version_major = MS_FORMAT_MAJOR;
    header->version_minor = MS_FORMAT_MINOR;
    header->extent_bytes = MS_EXTENT_BYTES;
    header->checksum = ms_checksum(header, offsetof(struct ms_file_header, checksum));
}

/* One part only. */
static void mend_digest(char *payload, uint64_t committed)
{
    struct ms_digest_part part;

    if (committed > sizeof(part) &&
        committed <= MS_EXTENT_BYTES - sizeof(struct ms_extent_header)) {
        memcpy(&part, payload, sizeof(part));
        part.part = 0;
        part.parts = 1;
        part.total_bytes = committed - sizeof(part);
        part.checksum = ms_checksum(payload + sizeof(part), (size_t)part.total_bytes);
        memcpy(payload, &part, sizeof(part));
    }
}

/* Sizes are left as they are: the reader has to bear them. */
static void mend_extent(char *extent, uint64_t trace_id, uint8_t flags)
{
    struct ms_extent_header *header = (struct ms_extent_header *)extent;
    const uint64_t committed = header->committed & UINT32_MAX;

    if (header->kind == 0) {
        return;
    }
    if (flags & SPARSE_EXTENTS) {
        header->magic = MS_EXTENT_MAGIC;
        header->trace_id = trace_id;
        header->checksum = ms_extent_checksum(header, header->sequence);
    }
    if ((flags & SPARSE_PAYLOADS) && header->kind == MS_EXTENT_DIGEST) {
        mend_digest(extent + sizeof(*header), committed);
    }
    if ((flags & SPARSE_PAYLOADS) && header->payload_offset <= MS_EXTENT_BYTES &&
        committed <= MS_EXTENT_BYTES - header->payload_offset) {
        header->payload_checksum = ms_checksum(extent + header->payload_offset, (size_t)committed);
    }
}

static void mend(struct ms_buffer *trace, uint8_t flags)
{
    struct ms_file_header *header = (struct ms_file_header *)trace->at;

    if (trace->bytes < sizeof(*header)) {
        return;
    }
    if (flags & SPARSE_HEADER) {
        mend_header(header);
    }
    for (size_t at = MS_EXTENT_BYTES; at + MS_EXTENT_BYTES <= trace->bytes; at += MS_EXTENT_BYTES) {
        mend_extent(trace->at + at, header->trace_id, flags);
    }
}

bool sparse_expand(const uint8_t *input, size_t bytes, struct ms_buffer *trace)
{
    const uint8_t flags = bytes > 0 ? input[0] : 0;
    struct sparse_piece piece;

    for (size_t at = 1; at + sizeof(piece) <= bytes; at += piece.bytes) {
        memcpy(&piece, input + at, sizeof(piece));
        at += sizeof(piece);
        piece.bytes = piece.bytes < bytes - at ? piece.bytes : (uint32_t)(bytes - at);
        if (piece.offset > SPARSE_MOST_BYTES - piece.bytes) {
            continue;
        }

        const size_t end = (size_t)piece.offset + piece.bytes;

        if (end > trace->bytes && !ms_buffer_extend(trace, end - trace->bytes)) {
            return false;
        }
        memcpy(trace->at + piece.offset, input + at, piece.bytes);
    }
    mend(trace, flags);
    return true;
}

static size_t zeros_at(const struct ms_buffer *trace, size_t at)
{
    size_t end = at;

    while (end < trace->bytes && trace->at[end] == 0) {
        end++;
    }
    return end - at;
}

void sparse_squeeze(const struct ms_buffer *trace, uint8_t flags, struct ms_buffer *output)
{
    ms_buffer_append(output, (const char *)&flags, 1);
    for (size_t begin = zeros_at(trace, 0), end; begin < trace->bytes;
         begin = end + zeros_at(trace, end)) {
        end = begin;
        while (end < trace->bytes && zeros_at(trace, end) < GAP_BYTES) {
            end += zeros_at(trace, end) + 1;
        }
        end = end < trace->bytes ? end : trace->bytes;

        const struct sparse_piece piece = {(uint32_t)begin, (uint32_t)(end - begin)};

        ms_buffer_append(output, (const char *)&piece, sizeof(piece));
        ms_buffer_append(output, trace->at + begin, end - begin);
    }
    /* The file's length, where it ends in zeros: an empty piece keeps it. */
    if (trace->bytes > 0) {
        const struct sparse_piece last = {(uint32_t)trace->bytes, 0};

        ms_buffer_append(output, (const char *)&last, sizeof(last));
    }
}
