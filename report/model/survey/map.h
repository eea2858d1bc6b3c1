/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses in the survey: mappings, arenas, and the maps drawn from them. One at a time. */
#ifndef MEMSHIM_REPORT_MODEL_SURVEY_MAP_H
#define MEMSHIM_REPORT_MODEL_SURVEY_MAP_H

#include "report/fold/live_set.h"
#include "report/model/model.h"
#include "report/model/survey.h"

struct ms_map {
    /* Live now, by address; blocks that are arenas by their id. */
    struct ms_live_set mapped, arenas;
    struct ms_live_set host_chunks; /* by handle */
    uint32_t column;                /* the next one */
};

#define MS_MAP_PAGE_KEY (UINT64_C(1) << 63) /* a framework's page: added to its address */

static inline bool ms_map_is_page(const struct ms_live *live)
{
    return live->key & MS_MAP_PAGE_KEY;
}

void ms_map_free(struct ms_map *map);

/* First call: chooses the segments to draw. */
void ms_map_choose(const struct ms_model *model, struct ms_survey *survey);

/* Then takes every event. arena: it is the BLOCK_ALLOC of an arena. */
void ms_map_take(struct ms_map *map, const struct ms_event *event, bool arena);

/* Draws the columns that end by that time. live: blocks and tensors. */
void ms_map_pass(struct ms_map *map, struct ms_survey *survey, const struct ms_live_set *live,
                 uint64_t time_ns);

/* The sites that pin free memory on the device now. Null: there is no arena. */
struct ms_survey_pins *ms_map_pins(const struct ms_map *map, const struct ms_live_set *live,
                                   uint8_t device, uint64_t time_ns);

#endif
