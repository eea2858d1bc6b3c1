/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the traces of a dry run. */
#include "shim/cli/dry_run/read.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/path.h"
#include "report/model/ledger.h"
#include "report/model/model.h"
#include "report/model/reading/read_model.h"
#include "report/model/site_rows.h"
#include "report/model/step_of.h"
#include "report/model/survey/take.h"
#include "report/model/verdict/held_lines.h"
#include "report/read/traces.h"
#include "report/render/formats.h"
#include "report/replay/course.h"
#include "shim/cli/dry_run/largest.h"
#include "shim/cli/dry_run/values.h"
#include "shim/cli/dry_run/workspaces.h"

#define HOLDERS   3
#define WHY_BYTES (PATH_MAX + 512)

/* ---- progress ---- */

static uint64_t steps_of(const struct ms_model *model)
{
    return model->recurrence.known ? model->recurrence.count : 0;
}

static void look_at(const struct ms_model *model, struct ms_dry_progress *progress)
{
    const int device = ms_model_main_device(model);

    if (device < 0) {
        return;
    }

    const uint64_t steps = steps_of(model);
    const uint64_t peak = ms_aggregate_peak_live(&model->devices[device].sums).live_bytes;

    if (progress->processes == 0 || steps < progress->least_steps) {
        progress->least_steps = steps;
    }
    progress->all_stepped_twice =
        (progress->processes == 0 || progress->all_stepped_twice) && model->recurrence.rarest != 1;
    progress->all_have_state = (progress->processes == 0 || progress->all_have_state) &&
                               model->made_state_bytes[device] > 0;
    progress->validates = progress->validates || model->recurrence.evaluations_ended > 0;
    progress->trains = progress->trains || model->recurrence.passes > 0;
    progress->peak_live_bytes = peak > progress->peak_live_bytes ? peak : progress->peak_live_bytes;
    progress->processes++;
}

void ms_dry_progress(const char *output, struct ms_dry_progress *progress)
{
    struct ms_buffer traces = {0};
    char why[WHY_BYTES];

    *progress = (struct ms_dry_progress){0};
    if (ms_traces_find(output, &traces, why, sizeof(why))) {
        for (size_t i = 0; i < ms_traces_count(&traces); i++) {
            struct ms_model *model = ms_model_new(ms_traces_at(&traces, i), why, sizeof(why));

            if (model) {
                look_at(model, progress);
                ms_model_delete(model);
            }
        }
    }
    ms_buffer_free(&traces);
}

/* ---- results ---- */

static void take_peak(const struct ms_model *model, int device, struct ms_dry_rank *rank)
{
    const struct ms_survey_moment *moment = ms_ledger_peak_moment(model, device);
    struct ms_held_line lines[HOLDERS];
    size_t count;

    if (!moment) {
        return;
    }
    memcpy(rank->kind_bytes, moment->kind_bytes, sizeof(rank->kind_bytes));
    rank->kinds_known = true;
    count = ms_held_lines(model, device, moment, MS_KIND_COUNT, lines, HOLDERS);
    for (size_t i = 0; i < count; i++) {
        ms_held_line_add(model, &lines[i], moment->live_bytes, &rank->holds);
        ms_buffer_append(&rank->holds, "", 1);
    }
    ms_held_lines_free(lines, count);
    rank->peak_step = ms_step_at(model, moment->time_ns);
}

static void name_optimizer(const struct ms_model *model, struct ms_dry_rank *rank)
{
    struct ms_buffer line = {0};

    if (model->recurrence.optimizer_site > 0) {
        ms_site_add_line(model, model->recurrence.optimizer_site, &line);
        ms_site_add_user(model, model->recurrence.optimizer_site, &line);
    }
    ms_buffer_append(&line, "", 1);
    if (!line.failed) {
        (void)snprintf(rank->optimizer_line, sizeof(rank->optimizer_line), "%s", line.at);
    }
    ms_buffer_free(&line);
}

/* The largest batch, with the card's own memory for everything else, and the same cost of live
 * bytes as in this run. */
static void find_batch(const struct ms_dry_rank *rank, const struct ms_card *card, int ground,
                       struct ms_dry_batch *batch)
{
    const struct ms_headroom *headroom = &rank->headroom;
    const uint64_t needs = rank->needs.charged_bytes[ground];
    const uint64_t beside = headroom->beside_bytes + card->context_bytes;
    double room;

    if (!headroom->known || !rank->replayed || needs <= headroom->beside_bytes ||
        card->total_bytes + rank->needs.context_bytes <= beside) {
        return;
    }
    room = (double)(card->total_bytes + rank->needs.context_bytes - beside) /
           (double)(needs - headroom->beside_bytes) * (double)rank->peak_live_bytes;
    batch->factor = ms_headroom_largest(headroom, (uint64_t)room, &batch->unbounded);
}

static void replay(const struct ms_model *model, int device, const struct ms_dry_answer *answer,
                   struct ms_dry_rank *rank)
{
    struct ms_recording *recording = ms_recording_new((unsigned)device);
    char why[WHY_BYTES];

    if (recording && ms_recording_read_trace(recording, model->path, device, why, sizeof(why)) &&
        ms_dry_workspaces_mark(model, recording) &&
        ms_card_needs(recording, answer->card->context_bytes, &rank->needs)) {
        rank->replayed = true;
        for (size_t i = 0; i < answer->card_count; i++) {
            ms_card_fit(recording, &rank->needs, &answer->cards[i], &rank->fits[i]);
            for (int ground = 0; ground < MS_GROUND_COUNT; ground++) {
                find_batch(rank, &answer->cards[i], ground, &rank->batches[i][ground]);
            }
        }
        if (model->survey) {
            ms_dry_largest_take(model, device, recording, &rank->largest);
        }
        rank->course = answer->keeps_courses ? ms_course_of(recording) : NULL;
    }
    ms_recording_delete(recording);
}

static void take_rank(struct ms_model *model, const struct ms_dry_answer *answer,
                      struct ms_dry_rank *rank)
{
    const int device = ms_model_main_device(model);
    const struct ms_aggregate *sums = &model->devices[device].sums;

    (void)snprintf(rank->folder, sizeof(rank->folder), "%.255s", ms_base_name(model->dir));
    rank->rank = model->header.rank;
    rank->world = model->header.world_size > 0 ? (uint64_t)model->header.world_size : 0;
    rank->steps = steps_of(model);
    rank->validates = model->recurrence.evaluations_ended > 0;
    rank->is_loop = model->recurrence.known && model->recurrence.passes == 0;
    rank->has_state = model->made_state_bytes[device] > 0;
    rank->died_of_oom = ms_model_fatal_oom(model) != NULL;
    rank->peak_live_bytes = ms_aggregate_peak_live(sums).live_bytes;
    rank->peak_tensor_bytes = sums->peak_tensor_bytes;
    rank->peak_reserved_bytes = sums->peak_reserved.reserved_bytes;
    rank->peak_charged_bytes = sums->peak_charged.charged_bytes;
    rank->nccl_bytes = ms_ledger_charged(ms_aggregate_at_peak(sums), MS_CHARGE_NCCL).bytes;
    if (model->survey) {
        rank->headroom = model->survey->devices[device].headroom;
        take_peak(model, device, rank);
        name_optimizer(model, rank);
        /* Some optimizers make it beforehand. */
        rank->has_state = rank->has_state || rank->kind_bytes[MS_KIND_OPTIMIZER] > 0;
    }
    replay(model, device, answer, rank);
}

static void read_trace(const char *path, struct ms_dry_answer *answer)
{
    char why[WHY_BYTES];
    struct ms_model *model = ms_model_new(path, why, sizeof(why));
    struct ms_dry_rank *rank;

    if (!model) {
        return;
    }
    if (ms_model_main_device(model) >= 0) {
        rank = ms_buffer_extend(&answer->ranks, sizeof(*rank));
        ms_model_name_sites(model, MS_STACKS_LINES, NULL);
        ms_model_survey(model, MS_SURVEY_SUMS);
        if (rank) {
            take_rank(model, answer, rank);
            ms_dry_values_take(model, answer);
        }
    }
    ms_model_delete(model);
}

void ms_dry_read(const char *output, struct ms_dry_answer *answer)
{
    struct ms_buffer traces = {0};
    char why[WHY_BYTES];

    if (ms_traces_find(output, &traces, why, sizeof(why))) {
        for (size_t i = 0; i < ms_traces_count(&traces); i++) {
            read_trace(ms_traces_at(&traces, i), answer);
        }
        ms_dry_values_sort(answer);
    }
    ms_buffer_free(&traces);
}

/* Beside the folders of the run's processes. */
static void save_beside(const struct ms_buffer *cards, const char *process)
{
    const char *folder = strrchr(process, '/');
    char path[PATH_MAX + sizeof(MS_PAGE_CARDS)];

    if (folder) {
        (void)snprintf(path, sizeof(path), "%.*s/" MS_PAGE_CARDS, (int)(folder - process), process);
        (void)ms_buffer_save(cards, path); /* else the pages are without them */
    }
}

void ms_dry_save_cards(const char *output, const struct ms_dry_answer *answer)
{
    struct ms_buffer traces = {0}, cards = {0};
    char why[WHY_BYTES];

    ms_dry_cards_json(answer, &cards);
    if (!cards.failed && ms_traces_find(output, &traces, why, sizeof(why))) {
        save_beside(&cards, ms_traces_at(&traces, 0));
    }
    ms_buffer_free(&traces);
    ms_buffer_free(&cards);
}

void ms_dry_answer_free(struct ms_dry_answer *answer)
{
    for (size_t i = 0; i < ms_dry_rank_count(answer); i++) {
        ms_buffer_free(&ms_dry_rank_at(answer, i)->holds);
        ms_recording_delete(ms_dry_rank_at(answer, i)->course);
    }
    ms_buffer_free(&answer->ranks);
    ms_buffer_free(&answer->values);
}
