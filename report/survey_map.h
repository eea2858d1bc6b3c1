/* Addresses in the survey: what is mapped where, which arenas there are, and the pictures that are
 * taken of it. One at a time. */
#ifndef MEMSHIM_REPORT_SURVEY_MAP_H
#define MEMSHIM_REPORT_SURVEY_MAP_H

#include "report/live_set.h"
#include "report/model.h"
#include "report/survey.h"

/* Addresses that were reserved, or mapped without that. */
struct ms_map_range {
    uint8_t device;
    bool open, framework;
    uint64_t addr, bytes;
    uint64_t low, high; /* that were ever mapped in it: none where high is 0 */
    uint64_t begin_ns, end_ns, last_ns;
    uint64_t mapped_bytes; /* now */
    double weight;         /* mapped bytes x ns */
};

struct ms_map {
    struct ms_buffer ranges; /* struct ms_map_range */
    size_t newest_range;     /* that was looked for */
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

/* First, every event once: which ranges there are. */
void ms_map_scout(struct ms_map *map, const struct ms_event *event, uint64_t time_ns);

/* Then the pictures have their places. */
void ms_map_choose(struct ms_map *map, const struct ms_model *model, struct ms_survey *survey);

/* Then every event again. arena: a BLOCK_ALLOC of one. */
void ms_map_take(struct ms_map *map, const struct ms_event *event, bool arena);

/* Columns that end at that time or before. live: blocks and tensors. */
void ms_map_pass(struct ms_map *map, struct ms_survey *survey, const struct ms_live_set *live,
                 uint64_t time_ns);

/* Who pins what on the device, now. Null where there is no arena. */
struct ms_survey_pins *ms_map_pins(const struct ms_map *map, const struct ms_live_set *live,
                                   uint8_t device, uint64_t time_ns);

#endif
