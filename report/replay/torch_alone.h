/* SPDX-License-Identifier: Apache-2.0 */
/* A recorded run once more, through PyTorch's own caching allocator as it is without memshim: a
 * model of it (c10/cuda/CUDACachingAllocator.cpp of 2.6 to 2.15, default settings). Best fit in
 * free blocks of a pool, segments of 2 MiB, 20 MiB or what is asked for, and where the driver has
 * no more, all cached segments are given back before it is asked once more. With expandable
 * segments: pages of 2 or 20 MiB under one range of addresses for each stream and pool.
 *
 * Blocks that wait for another stream (record_stream) are taken to be free at once: there PyTorch
 * may need more. */
#ifndef MEMSHIM_REPORT_REPLAY_TORCH_ALONE_H
#define MEMSHIM_REPORT_REPLAY_TORCH_ALONE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/replay/recording.h"

struct ms_torch_alone {
    bool host_memory;             /* of this machine: it ran out, nothing below holds */
    bool failed;                  /* the device had no more */
    size_t operation;             /* where: index into the recording */
    uint64_t peak_reserved_bytes; /* in PyTorch's segments or pages */
    uint64_t peak_charged_bytes;  /* with what stands beside them: contexts, the program's own */
};

/* cap_bytes: of all that is charged, contexts as the recording has them among it. */
void ms_torch_alone_run(const struct ms_recording *recording, uint64_t cap_bytes, bool expandable,
                        struct ms_torch_alone *result);

#endif
