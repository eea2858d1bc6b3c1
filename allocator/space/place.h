/* SPDX-License-Identifier: Apache-2.0 */
/* Placement: chooses where a request goes. State lock. */
#ifndef MEMSHIM_ALLOCATOR_SPACE_PLACE_H
#define MEMSHIM_ALLOCATOR_SPACE_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/locks/lock_annotations.h"
#include "allocator/base/status.h"
#include "allocator/space/block.h"
#include "allocator/space/range.h"

/* Requests of at least this size are large. */
#define MS_LARGE_BYTES ((uint64_t)1 << 20)

enum ms_region ms_region_of(const struct ms_pool *pool, uint64_t bytes);

/* Whether so much of the cap is used or earmarked that good places matter more than few driver
 * calls. */
bool ms_place_tight(const struct ms_pool *pool) MS_REQUIRES(ms_state_role);

struct ms_placement {
    struct ms_range *first;  /* free or hole; addr lies in it or in those that follow */
    ms_addr_t addr;          /* where the block begins */
    uint64_t unbacked_bytes; /* of its granules */
    uint64_t new_chunks;     /* chunks of its granules that no live block touches yet */
};

/* The best place for a request on `stream`. Without `holes_too` only backed places count. False:
 * there is none. */
bool ms_place_best(struct ms_pool *pool, ms_stream_t stream, uint64_t bytes, bool holes_too,
                   struct ms_placement *out) MS_REQUIRES(ms_state_role);

/* A place at the beginning of a hole that is large enough: it cuts no idle chunk. */
bool ms_place_fresh(struct ms_pool *pool, uint64_t bytes, struct ms_placement *out)
    MS_REQUIRES(ms_state_role);

/* Makes one busy range of a place; the ranges around it keep their state. In a hole it takes whole
 * granules, so that it may begin before the block and end after it. *idle: whether all of it was
 * idle or hole. Null: the host is out of memory, nothing changed. */
struct ms_range *ms_place_claim(struct ms_pool *pool, const struct ms_placement *place,
                                uint64_t bytes, bool *idle) MS_REQUIRES(ms_state_role);

/* Takes the part in [from, to), which is not empty, out of a free range or a hole; the rest keeps
 * its state. Two nodes must be in reserve (ms_slab_reserve). */
struct ms_range *ms_range_cut(struct ms_pool *pool, struct ms_range *range, ms_addr_t from,
                              ms_addr_t to) MS_REQUIRES(ms_state_role);

/* Whether memory freed in the device's order may be as good as idle, so that the caller should
 * query its fences before the request takes another place. */
bool ms_place_awaits(const struct ms_pool *pool, const struct ms_request *request)
    MS_REQUIRES(ms_state_role);

/* Makes a block of backed memory that the request may use at once. asked: the caller has just
 * queried the fences. MS_ERR_NO_MEMORY: there is none; or, while memory is tight, a better place
 * needs driver calls; or, if not asked, pending memory may be the better place. */
ms_status_t ms_pool_reuse(struct ms_pool *pool, const struct ms_request *request, uint64_t bytes,
                          bool asked, struct ms_block_info *out) MS_REQUIRES(ms_state_role);

/* Likewise, but takes any place with room: in other regions too, and however much it wastes. */
ms_status_t ms_pool_reuse_any(struct ms_pool *pool, const struct ms_request *request,
                              uint64_t bytes, struct ms_block_info *out) MS_REQUIRES(ms_state_role);

#endif
