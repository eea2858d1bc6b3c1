/* SPDX-License-Identifier: Apache-2.0 */
/* Replays a recorded run through a model of PyTorch's own caching allocator without memshim
 * (c10/cuda/CUDACachingAllocator.cpp of 2.6 to 2.15, default settings). It uses best fit in the
 * free blocks of a pool, and segments of 2 MiB, 20 MiB or the requested size. When the driver has
 * no more, it gives back all cached segments and asks once more. With expandable segments: pages of
 * 2 or 20 MiB under one range of addresses for each stream and pool.
 *
 * An optional tensor that is refused (recording.h) does not end the run.
 *
 * Blocks that wait for another stream (record_stream) count as free at once: there PyTorch may need
 * more. */
#ifndef MEMSHIM_REPORT_REPLAY_TORCH_ALONE_H
#define MEMSHIM_REPORT_REPLAY_TORCH_ALONE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/replay/recording.h"

struct ms_torch_alone {
    bool host_memory;             /* this machine ran out of memory: nothing below is valid */
    bool failed;                  /* the device had no more */
    bool went_without;            /* it had no more for an optional tensor */
    size_t operation;             /* the failed one: index into the recording */
    uint64_t peak_reserved_bytes; /* in PyTorch's segments or pages */
    uint64_t peak_charged_bytes;  /* including memory beside them: contexts, the program's own */
};

/* cap_bytes: for all that is charged, including contexts as the recording has them. */
void ms_torch_alone_run(const struct ms_recording *recording, uint64_t cap_bytes, bool expandable,
                        struct ms_torch_alone *result);

#endif
