/* SPDX-License-Identifier: Apache-2.0 */
/* Computations that the readers and the writer of a trace share: checksums of extents. */
#include "report/trace/format.h"

#include <stddef.h>

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
