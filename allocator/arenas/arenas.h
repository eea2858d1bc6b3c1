/* SPDX-License-Identifier: Apache-2.0 */
/* Live tensors, for code inside the pool; arena.h has the reports of the pool's users. State
 * lock. */
#ifndef MEMSHIM_ALLOCATOR_ARENAS_ARENAS_H
#define MEMSHIM_ALLOCATOR_ARENAS_ARENAS_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/locks/lock_annotations.h"
#include "allocator/space/segment.h"

struct ms_arenas;
struct ms_tensor;

/* Ends all tensors that live in the range. State lock. */
void ms_arenas_bury(struct ms_arenas *arenas, ms_addr_t addr, uint64_t bytes)
    MS_REQUIRES(ms_state_role);
/* Finds the live tensor around *addr in the segment, if there is one: its beginning and bytes.
 * State lock. */
void ms_arenas_around(struct ms_arenas *arenas, const struct ms_segment *segment, ms_addr_t *addr,
                      uint64_t *bytes) MS_REQUIRES(ms_state_role);
uint64_t ms_arenas_live_bytes(const struct ms_arenas *arenas) MS_REQUIRES(ms_state_role);
/* Visits every live tensor in a segment that has granules. `visit` must not change tensors. State
 * lock. */
void ms_arenas_each(struct ms_arenas *arenas,
                    void (*visit)(void *ctx, struct ms_segment *segment,
                                  const struct ms_tensor *tensor),
                    void *ctx) MS_REQUIRES(ms_state_role);
/* The segment is about to be removed. State lock. */
void ms_arenas_segment_gone(struct ms_arenas *arenas, const struct ms_segment *segment)
    MS_REQUIRES(ms_state_role);

#endif
