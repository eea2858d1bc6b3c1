/* SPDX-License-Identifier: Apache-2.0 */
/* Varints: numbers of seven bits a byte, the lowest first, bit 7 set on all bytes but the last. The
 * one coder for records, digests and protocol buffers. */
#ifndef MEMSHIM_ALLOCATOR_BASE_VARINT_H
#define MEMSHIM_ALLOCATOR_BASE_VARINT_H

#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"

#define MS_VARINT_BYTES 10u /* of the longest one */

/* Writes it at `out`, which has MS_VARINT_BYTES of room; returns the position after it. */
static inline uint8_t *ms_varint_put(uint8_t *out, uint64_t value)
{
    while (value >= 0x80) {
        *out++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *out++ = (uint8_t)value;
    return out;
}

/* Appends one. */
static inline void ms_varint_append(struct ms_buffer *out, uint64_t value)
{
    uint8_t bytes[MS_VARINT_BYTES];

    ms_buffer_append(out, (const char *)bytes, (size_t)(ms_varint_put(bytes, value) - bytes));
}

/* Reads one that ends before `end`; returns the position after it. Null, and *value is 0: it does
 * not end there, or it is longer than MS_VARINT_BYTES. */
static inline const uint8_t *ms_varint_get(const uint8_t *at, const uint8_t *end, uint64_t *value)
{
    uint64_t read = 0;

    for (unsigned shift = 0; shift < 64 && at < end; shift += 7) {
        const uint8_t byte = *at++;

        read |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *value = read;
            return at;
        }
    }
    *value = 0;
    return NULL;
}

#endif
