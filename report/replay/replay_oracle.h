/* SPDX-License-Identifier: Apache-2.0 */
/* The choice that knows the future: of two free chunks it takes the one on which a tensor is
 * allocated later. The distance to it shows how much another choice could still gain. */
#ifndef MEMSHIM_REPORT_REPLAY_REPLAY_ORACLE_H
#define MEMSHIM_REPORT_REPLAY_REPLAY_ORACLE_H

#include "allocator/backing/choice.h"
#include "report/replay/recording.h"

struct ms_oracle;

/* The recording must outlive it. Null: memory ran out. */
struct ms_oracle *ms_oracle_new(const struct ms_recording *recording);
void ms_oracle_delete(struct ms_oracle *oracle); /* null: nothing */

const struct ms_choice *ms_oracle_choice(struct ms_oracle *oracle);

/* The replay has put this arena at `base`; has removed it; is at this operation. */
void ms_oracle_placed(struct ms_oracle *oracle, uint32_t arena, ms_addr_t base);
void ms_oracle_gone(struct ms_oracle *oracle, uint32_t arena);
void ms_oracle_now(struct ms_oracle *oracle, size_t operation);

/* The next operation after `operation` that allocates a tensor on a byte of [offset, offset +
 * bytes) of the arena; UINT64_MAX: there is none. */
uint64_t ms_oracle_next(const struct ms_oracle *oracle, uint32_t arena, uint64_t offset,
                        uint64_t bytes, size_t operation);

#endif
