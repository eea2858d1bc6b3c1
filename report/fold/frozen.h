/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas that a capture froze: a CUDA graph uses addresses in them, and PyTorch serves nothing else
 * from them. */
#ifndef MEMSHIM_REPORT_FOLD_FROZEN_H
#define MEMSHIM_REPORT_FOLD_FROZEN_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "allocator/base/event.h"

#define MS_FROZEN_RANGE_BYTES 24u /* of one in `ranges`, which may be copied */

struct ms_frozen {
    struct ms_buffer ranges; /* private */
};

/* Takes MS_EVENT_ARENA_FROZEN. Drops it without memory. */
void ms_frozen_add(struct ms_frozen *frozen, const struct ms_event *event);

/* Removes the arena that begins there, because it was freed; nothing if it was not frozen. */
void ms_frozen_take(struct ms_frozen *frozen, uint8_t device, uint64_t addr);

/* Whether the address lies in one of them. */
bool ms_frozen_has(const struct ms_frozen *frozen, uint8_t device, uint64_t addr);

void ms_frozen_free(struct ms_frozen *frozen);

#endif
