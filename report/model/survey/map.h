/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses in the survey: what is mapped where, which arenas there are, and the pictures that are
 * taken of it. One at a time. */
#ifndef MEMSHIM_REPORT_MODEL_SURVEY_MAP_H
#define MEMSHIM_REPORT_MODEL_SURVEY_MAP_H

#include "report/fold/live_set.h"
#include "report/model/model.h"
#include "report/model/survey.h"

struct ms_map {
    /* Live now, by address but for blocks that are arenas, which go by their id. */
    struct ms_live_set mapped, arenas;
    struct ms_live_set host_chunks; /* by handle */
    uint32_t column;                /* the next one */
};

#define MS_MAP_PAGE_KEY (UINT64_C(1) << 63) /* a framework's page: beside its address */

static inline bool ms_map_is_page(const struct ms_live *live)
{
    return live->key & MS_MAP_PAGE_KEY;
}

void ms_map_free(struct ms_map *map);

/* First: the pictures get their places. */
void ms_map_choose(const struct ms_model *model, struct ms_survey *survey);

/* Then every event. arena: a BLOCK_ALLOC of one. */
void ms_map_take(struct ms_map *map, const struct ms_event *event, bool arena);

/* Columns that end at that time or before. live: blocks and tensors. */
void ms_map_pass(struct ms_map *map, struct ms_survey *survey, const struct ms_live_set *live,
                 uint64_t time_ns);

/* Who pins what on the device, now. Null where there is no arena. */
struct ms_survey_pins *ms_map_pins(const struct ms_map *map, const struct ms_live_set *live,
                                   uint8_t device, uint64_t time_ns);

#endif
