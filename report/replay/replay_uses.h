/* SPDX-License-Identifier: Apache-2.0 */
/* The access model: when the device uses live memory in a replay, since recordings do not have
 * uses.
 *
 *   every range     written when it is allocated, read right before it is freed (an activation:
 *                   when backward has come back to it)
 *   what persists   (live over more than one end of a step), besides:
 *     parameters    those allocated before the first step's peak: read in that order between a
 *                   step's beginning and its peak, in the reverse order between its peak and its
 *                   end, and read and written at its end
 *     optimizer     those allocated later: read and written at each step's end, in that order.
 *                   Their call sites are an optimizer's, where no parameter has the same
 *
 * A recording without steps has nothing that persists. */
#ifndef MEMSHIM_REPORT_REPLAY_REPLAY_USES_H
#define MEMSHIM_REPORT_REPLAY_REPLAY_USES_H

#include <stdbool.h>
#include <stddef.h>

#include "report/replay/recording.h"

struct ms_recorded_use {
    size_t operation;  /* it comes right before this one */
    size_t allocation; /* the operation that allocated the range */
    bool written;      /* else only read */
};

/* Adds the uses of long-lived memory, by operation. Adds to `optimizers` a byte for each call site
 * from 0 on: 1: it is an optimizer's. False: memory ran out. */
bool ms_recorded_uses(const struct ms_recording *recording, struct ms_buffer *uses,
                      struct ms_buffer *optimizers);

static inline size_t ms_recorded_uses_count(const struct ms_buffer *uses)
{
    return uses->bytes / sizeof(struct ms_recorded_use);
}

static inline const struct ms_recorded_use *ms_recorded_use_at(const struct ms_buffer *uses,
                                                               size_t index)
{
    return (const struct ms_recorded_use *)uses->at + index;
}

#endif
