/* SPDX-License-Identifier: Apache-2.0 */
/* Results over several processes of a run: which ran out of memory first, and which stands out. */
#include "report/render/merged/merged.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/model/site_rows.h"
#include "report/render/json/report.h"
#include "report/render/text/parts.h"

#define MOST_HOLDINGS 64 /* of a process: the largest */

size_t ms_merged_count(const struct ms_merged *merged)
{
    return merged->ranks.bytes / sizeof(struct ms_rank);
}

const struct ms_rank *ms_merged_rank(const struct ms_merged *merged, size_t index)
{
    return (const struct ms_rank *)merged->ranks.at + index;
}

bool ms_merged_runs(const struct ms_merged *merged)
{
    bool runs = false;

    for (size_t i = 0; i < ms_merged_count(merged); i++) {
        runs |= ms_merged_rank(merged, i)->end == MS_PROCESS_RUNNING;
    }
    return runs;
}

void ms_merged_begin(struct ms_merged *merged)
{
    memset(merged, 0, sizeof(*merged));
    merged->json = (struct ms_json){.out = &merged->members, .depth = 2};
}

void ms_merged_free(struct ms_merged *merged)
{
    for (size_t i = 0; i < ms_merged_count(merged); i++) {
        ms_buffer_free(&((struct ms_rank *)merged->ranks.at)[i].answer);
    }
    ms_buffer_free(&merged->ranks);
    ms_buffer_free(&merged->members);
    ms_buffer_free(&merged->holdings);
    ms_site_match_free(&merged->match);
}

static void fill_answer(struct ms_rank *rank, const struct ms_model *model)
{
    const struct ms_model_oom *fatal = ms_model_fatal_oom(model);

    rank->ooms = ms_model_ooms_of_program(model);
    if (fatal) {
        rank->died_of_oom = true;
        rank->oom_unix_ns = ms_model_start_unix_ns(model) + fatal->time_ns;
        ms_text_add_oom_answer(&rank->answer, model, true);
    } else if (rank->main_device >= 0) {
        ms_text_add_good_answer(&rank->answer, model, rank->main_device);
    }
}

static void fill(struct ms_rank *rank, const struct ms_model *model)
{
    const struct ms_file_header *header = &model->header;
    const char *folder = strrchr(model->dir, '/');

    snprintf(rank->folder, sizeof(rank->folder), "%.*s", (int)sizeof(rank->folder) - 1,
             folder ? folder + 1 : model->dir);
    snprintf(rank->program, sizeof(rank->program), "%.*s", (int)sizeof(rank->program) - 1,
             header->program);
    snprintf(rank->host, sizeof(rank->host), "%.*s", (int)sizeof(rank->host) - 1, header->host);
    snprintf(rank->version, sizeof(rank->version), "%.*s", (int)sizeof(rank->version) - 1,
             header->memshim_version);
    snprintf(rank->run_id, sizeof(rank->run_id), "%.*s", (int)sizeof(rank->run_id) - 1,
             header->run_id);
    rank->rank = header->rank;
    rank->pid = header->pid;
    rank->world_size = header->world_size;
    rank->end = model->end;
    rank->exit_known = ms_model_exit_known(model);
    rank->exit_status = header->exit_status;
    rank->start_unix_ns = ms_model_start_unix_ns(model);
    rank->clock_ahead_ns = header->clock_ahead_ns;
    rank->duration_ns = model->duration_ns;
    rank->main_device = ms_model_main_device(model);
    rank->fragmentation_ppm = -1;
    if (rank->main_device >= 0) {
        const struct ms_aggregate *sums = &model->devices[rank->main_device].sums;

        rank->peak_live_bytes = ms_aggregate_peak_live(sums).live_bytes;
        rank->peak_reserved_bytes = sums->peak_reserved.reserved_bytes;
        rank->peak_charged_bytes = sums->peak_charged.charged_bytes;
        rank->cap_bytes = sums->now.cap_bytes;
        rank->fragmentation_ppm = ms_aggregate_fragmentation_ppm(sums);
    }
    fill_answer(rank, model);
}

/* number: the process's. */
static void add_holdings(struct ms_merged *merged, const struct ms_model *model, int device,
                         size_t number)
{
    struct ms_buffer rows = {0};

    ms_site_rows(model, device, &rows);
    for (size_t i = 0; i < ms_site_row_count(&rows) && i < MOST_HOLDINGS; i++) {
        const struct ms_site_row *row = ms_site_row_at(&rows, i);
        struct ms_rank_holding *holding =
            ms_site_row_at_peak(row) > 0 ? ms_buffer_extend(&merged->holdings, sizeof(*holding))
                                         : NULL;

        if (holding) {
            *holding = (struct ms_rank_holding){
                .site = ms_site_match_add(&merged->match, model, row->site),
                .rank = number,
                .bytes = ms_site_row_at_peak(row)};
        }
    }
    ms_buffer_free(&rows);
}

void ms_merged_add(struct ms_merged *merged, const struct ms_model *model)
{
    struct ms_rank *rank = ms_buffer_extend(&merged->ranks, sizeof(*rank));

    if (rank) {
        fill(rank, model);
        if (rank->main_device >= 0) {
            add_holdings(merged, model, rank->main_device, ms_merged_count(merged) - 1);
        }
        ms_format_json_member(model, &merged->json, rank->folder);
    }
}

/* When a process failed, as far as known; UINT64_MAX: it ended well or still runs. */
static uint64_t death_unix_ns(const struct ms_rank *rank)
{
    const bool well = rank->end == MS_PROCESS_RUNNING ||
                      (rank->end != MS_PROCESS_KILLED && !(rank->exit_known && rank->exit_status));

    return well ? UINT64_MAX : rank->start_unix_ns + rank->duration_ns;
}

const struct ms_rank *ms_merged_first_dead(const struct ms_merged *merged)
{
    const struct ms_rank *by_oom = NULL, *by_end = NULL;

    for (size_t i = 0; i < ms_merged_count(merged); i++) {
        const struct ms_rank *rank = ms_merged_rank(merged, i);

        if (rank->died_of_oom && (!by_oom || rank->oom_unix_ns < by_oom->oom_unix_ns)) {
            by_oom = rank;
        }
        if (death_unix_ns(rank) != UINT64_MAX &&
            (!by_end || death_unix_ns(rank) < death_unix_ns(by_end))) {
            by_end = rank;
        }
    }
    return by_oom ? by_oom : by_end;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

static uint64_t peak_of(const struct ms_rank *rank, bool by_live)
{
    return by_live ? rank->peak_live_bytes : rank->peak_charged_bytes;
}

uint64_t ms_merged_median_peak(const struct ms_merged *merged, bool by_live)
{
    struct ms_buffer sorted = {0};
    const size_t count = ms_merged_count(merged);
    uint64_t *values = ms_buffer_extend(&sorted, count * sizeof(*values));
    uint64_t median = 0;

    if (values && count > 0) {
        for (size_t i = 0; i < count; i++) {
            values[i] = peak_of(ms_merged_rank(merged, i), by_live);
        }
        qsort(values, count, sizeof(*values), by_value);
        median = values[(count - 1) / 2];
    }
    ms_buffer_free(&sorted);
    return median;
}

static struct ms_outlier find_outlier(const struct ms_merged *merged, bool by_live)
{
    struct ms_outlier found = {.by_live = by_live,
                               .median_bytes = ms_merged_median_peak(merged, by_live)};
    uint64_t furthest = found.median_bytes / 10;

    for (size_t i = 0; ms_merged_count(merged) > 2 && i < ms_merged_count(merged); i++) {
        const uint64_t peak = peak_of(ms_merged_rank(merged, i), by_live);
        const uint64_t distance =
            peak > found.median_bytes ? peak - found.median_bytes : found.median_bytes - peak;

        if (distance > furthest) {
            furthest = distance;
            found.rank = ms_merged_rank(merged, i);
            found.bytes = peak;
        }
    }
    return found;
}

struct ms_outlier ms_merged_outlier(const struct ms_merged *merged)
{
    const struct ms_outlier charged = find_outlier(merged, false);
    const struct ms_outlier live = find_outlier(merged, true);

    return charged.rank || !live.rank ? charged : live;
}

/* By site, then by process: two stacks of a process may read the same. */
static int by_site(const void *a, const void *b)
{
    const struct ms_rank_holding *left = a, *right = b;

    if (left->site != right->site) {
        return left->site < right->site ? -1 : 1;
    }
    return left->rank < right->rank ? -1 : left->rank > right->rank;
}

/* The median of the processes' bytes, of which `count` are more than nothing; sorts them. */
static uint64_t median_of(uint64_t *bytes, size_t count, size_t processes)
{
    const size_t middle = (processes - 1) / 2, zeros = processes - count;

    qsort(bytes, count, sizeof(*bytes), by_value);
    return middle < zeros ? 0 : bytes[middle - zeros];
}

/* Compares the `count` holdings of one site. */
static struct ms_outlier_site compare(const struct ms_rank_holding *holdings, size_t count,
                                      size_t outlier, size_t processes, uint64_t *scratch)
{
    struct ms_outlier_site site = {.site = holdings->site};
    size_t used = 0;

    for (size_t i = 0; i < count; i++) {
        if (i > 0 && holdings[i].rank == holdings[i - 1].rank) {
            scratch[used - 1] += holdings[i].bytes;
        } else {
            scratch[used++] = holdings[i].bytes;
        }
        site.bytes += holdings[i].rank == outlier ? holdings[i].bytes : 0;
    }
    site.median_bytes = median_of(scratch, used, processes);
    return site;
}

static bool find_site(struct ms_rank_holding *holdings, size_t count, size_t outlier, bool more,
                      size_t processes, uint64_t *scratch, struct ms_outlier_site *found)
{
    uint64_t furthest = 0;

    qsort(holdings, count, sizeof(*holdings), by_site);
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && holdings[end].site == holdings[first].site;) {
            end++;
        }

        const struct ms_outlier_site site =
            compare(&holdings[first], end - first, outlier, processes, scratch);
        const uint64_t from = more ? site.median_bytes : site.bytes;
        const uint64_t to = more ? site.bytes : site.median_bytes;

        if (to > from && to - from > furthest) {
            furthest = to - from;
            *found = site;
        }
    }
    return furthest > 0;
}

bool ms_merged_outlier_site(const struct ms_merged *merged, struct ms_outlier_site *found)
{
    const struct ms_outlier outlier = ms_merged_outlier(merged);
    const size_t count = merged->holdings.bytes / sizeof(struct ms_rank_holding);
    struct ms_buffer holdings = {0}, scratch = {0};
    bool known = false;

    if (outlier.rank && count > 0) {
        ms_buffer_append(&holdings, merged->holdings.at, merged->holdings.bytes);
        if (!holdings.failed && ms_buffer_extend(&scratch, count * sizeof(uint64_t))) {
            known = find_site((struct ms_rank_holding *)holdings.at, count,
                              (size_t)(outlier.rank - ms_merged_rank(merged, 0)),
                              outlier.bytes > outlier.median_bytes, ms_merged_count(merged),
                              (uint64_t *)scratch.at, found);
        }
    }
    ms_buffer_free(&holdings);
    ms_buffer_free(&scratch);
    return known;
}
