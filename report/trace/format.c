/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers and the writer of a trace share: checksums of extents, names of devices. */
#include "report/trace/format.h"

#include <stddef.h>
#include <stdio.h>

#include "allocator/base/checksum.h"

uint64_t ms_extent_checksum(const struct ms_extent_header *header, uint64_t sequence)
{
    const size_t payload = header->payload_offset;
    uint64_t parts[3] = {ms_checksum(header, offsetof(struct ms_extent_header, checksum)), sequence,
                         0};

    if (payload > sizeof(*header) && payload <= MS_EXTENT_BYTES) {
        parts[2] = ms_checksum(header + 1, payload - sizeof(*header));
    }
    return ms_checksum(parts, sizeof(parts));
}

char *ms_uuid_text(const uint8_t uuid[MS_UUID_BYTES], char text[MS_UUID_TEXT_BYTES])
{
    size_t used = (size_t)snprintf(text, MS_UUID_TEXT_BYTES, "GPU");

    for (int i = 0; i < MS_UUID_BYTES; i++) {
        const bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;

        used += (size_t)snprintf(text + used, MS_UUID_TEXT_BYTES - used, "%s%02x", dash ? "-" : "",
                                 uuid[i]);
    }
    return text;
}
