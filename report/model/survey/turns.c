/* SPDX-License-Identifier: Apache-2.0 */
/* Turns: moments, other than the run's peak, at which a call site held its most. With a larger
 * batch the peak may be such a moment. */
#include <stdlib.h>

#include "report/model/site_rows.h"
#include "report/model/survey/state.h"

#define LEAST_PART 64u  /* of the peak: a site with less at most has no turn */
#define CLEARLY    128u /* a turn moves to a moment with clearly more live bytes: by 1/n */

struct late {
    uint32_t site;
    uint64_t most_bytes, late_bytes; /* ever, and the part of it not at the peak */
};

static int by_late(const void *a, const void *b)
{
    const struct late *left = a, *right = b;

    if (left->late_bytes != right->late_bytes) {
        return left->late_bytes > right->late_bytes ? -1 : 1;
    }
    return left->site < right->site ? -1 : left->site > right->site;
}

void ms_sampler_choose_turns(struct ms_sampler *sampler)
{
    const struct ms_model *model = sampler->model;
    const uint64_t peak_bytes =
        ms_aggregate_peak_live(&model->devices[sampler->device].sums).live_bytes;
    struct ms_buffer rows = {0}, late = {0};

    ms_site_rows(model, sampler->device, &rows);
    for (size_t i = 0; i < ms_site_row_count(&rows); i++) {
        const struct ms_site_row *row = ms_site_row_at(&rows, i);
        const struct late of = {row->site, row->sums.peak_bytes,
                                row->sums.peak_bytes - row->sums.at_peak_bytes};

        if (of.late_bytes > peak_bytes / LEAST_PART) {
            ms_buffer_append(&late, (const char *)&of, sizeof(of));
        }
    }
    if (late.bytes > 0) {
        qsort(late.at, late.bytes / sizeof(struct late), sizeof(struct late), by_late);
    }
    sampler->to->turns = calloc(MS_SURVEY_TURNS, sizeof(struct ms_turn));
    for (size_t i = 0; i < late.bytes / sizeof(struct late) && i < MS_SURVEY_TURNS; i++) {
        const struct late *of = (const struct late *)late.at + i;

        if (sampler->to->turns) {
            sampler->to->turns[sampler->to->turn_count++] =
                (struct ms_turn){.site = of->site, .most_bytes = of->most_bytes};
        }
    }
    ms_buffer_free(&rows);
    ms_buffer_free(&late);
}

static void take_turn(const struct ms_sampler *sampler, struct ms_turn *turn)
{
    turn->live_bytes = sampler->live_bytes;
    turn->holdings.bytes = 0;
    for (uint32_t id = 0; id < sampler->site_count; id = ms_sampler_next(sampler, id)) {
        const struct ms_holding holding = {.site = id, .bytes = sampler->sites[id].bytes};

        if (holding.bytes > 0) {
            ms_buffer_append(&turn->holdings, (const char *)&holding, sizeof(holding));
        }
    }
}

void ms_sampler_note_turns(struct ms_sampler *sampler)
{
    for (size_t i = 0; i < sampler->to->turn_count; i++) {
        struct ms_turn *turn = &sampler->to->turns[i];
        const uint64_t bytes =
            turn->site < sampler->site_count ? sampler->sites[turn->site].bytes : 0;

        if (bytes >= turn->most_bytes &&
            sampler->live_bytes > turn->live_bytes + turn->live_bytes / CLEARLY) {
            take_turn(sampler, turn);
        }
    }
}
