/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that build a recording, and private to them. One thread builds a recording;
 * nothing here takes a lock. */
#ifndef MEMSHIM_REPORT_REPLAY_RECORDING_STATE_H
#define MEMSHIM_REPORT_REPLAY_RECORDING_STATE_H

#include "report/replay/recording.h"

#define MS_RECORDED_GRANULE_BYTES (UINT64_C(2) << 20) /* pages are multiples of it */

static const struct ms_complaint ms_fine = {NULL, NULL};
static const struct ms_complaint ms_no_memory = {"line", "memory ran out here"};

static inline struct ms_complaint ms_complaint_of(const char *field, const char *problem)
{
    return (struct ms_complaint){field, problem};
}

/* An object with an address in the run: a block, or a page in a reservation. */
struct ms_recorded_place {
    struct ms_treap_node node;
    uint64_t addr, bytes;
    uint32_t operation; /* a block's allocation; MS_RECORDED_NONE: a page */
    uint32_t arena;     /* a page's */
};

/* ---- recording_places.c ---- */

/* The object at an address; null: there is none. */
struct ms_recorded_place *ms_recorded_place_at(const struct ms_recording *recording, uint64_t addr);

/* Adds a copy of *what. False: memory ran out. */
bool ms_recorded_add_place(struct ms_recording *recording, const struct ms_recorded_place *what);
void ms_recorded_remove_place(struct ms_recording *recording, struct ms_recorded_place *place);

/* Complains about a range that is too high, or overlaps a live object. */
struct ms_complaint ms_recorded_check_place(const struct ms_recording *recording, uint64_t addr,
                                            uint64_t bytes);

/* ---- recording.c ---- */

static inline struct ms_operation *ms_recorded_operation_at(const struct ms_recording *recording,
                                                            uint32_t index)
{
    return (struct ms_operation *)recording->operations.at + index;
}

static inline struct ms_recorded_arena *ms_recorded_arena_at(const struct ms_recording *recording,
                                                             uint32_t index)
{
    return (struct ms_recorded_arena *)recording->arenas.at + index;
}

/* Adds a copy of the operation at the end. */
struct ms_complaint ms_recorded_add(struct ms_recording *recording,
                                    const struct ms_operation *operation);

/* The number of a new arena; MS_RECORDED_NONE: memory ran out. */
uint32_t ms_recorded_add_arena(struct ms_recording *recording, uint64_t addr, uint64_t bytes,
                               bool reservation);

/* The recording's number of a stream of the run, new at its first use. */
uint8_t ms_recorded_stream(struct ms_recording *recording, uint64_t stream);

/* Complains about 0, and about more than MS_RECORDED_MOST_BYTES. */
struct ms_complaint ms_recorded_check_bytes(uint64_t bytes);

/* ---- recording_blocks.c ---- */

/* The arena that holds a place; makes a block an arena. MS_RECORDED_NONE: memory ran out. */
uint32_t ms_recorded_arena_of(struct ms_recording *recording,
                              const struct ms_recorded_place *place);

#endif
