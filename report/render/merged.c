/* SPDX-License-Identifier: Apache-2.0 */
/* The report of several processes: who ran out of memory first, and who stands out. */
#include "report/render/merged.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/units.h"
#include "report/model/site_rows.h"
#include "report/render/formats.h"
#include "report/render/sites.h"

#define SCHEMA "memshim-run-report/1"

#define MOST_HOLDINGS 64 /* of a process: the largest */

static size_t rank_count(const struct ms_merged *merged)
{
    return merged->ranks.bytes / sizeof(struct ms_rank);
}

static const struct ms_rank *rank_at(const struct ms_merged *merged, size_t index)
{
    return (const struct ms_rank *)merged->ranks.at + index;
}

void ms_merged_begin(struct ms_merged *merged)
{
    memset(merged, 0, sizeof(*merged));
    merged->json = (struct ms_json){.out = &merged->members, .depth = 2};
}

void ms_merged_free(struct ms_merged *merged)
{
    for (size_t i = 0; i < rank_count(merged); i++) {
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

    rank->ooms = ms_model_oom_count(model);
    if (fatal) {
        rank->died_of_oom = true;
        rank->oom_unix_ns = model->header.start_unix_ns + fatal->time_ns;
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
    snprintf(rank->run_id, sizeof(rank->run_id), "%.*s", (int)sizeof(rank->run_id) - 1,
             header->run_id);
    rank->rank = header->rank;
    rank->pid = header->pid;
    rank->world_size = header->world_size;
    rank->end = model->end;
    rank->exit_known = header->exit_known != 0;
    rank->exit_status = header->exit_status;
    rank->start_unix_ns = header->start_unix_ns;
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

/* number: of the process. */
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
            add_holdings(merged, model, rank->main_device, rank_count(merged) - 1);
        }
        ms_format_json_member(model, &merged->json, rank->folder);
    }
}

/* When a process failed, as far as that is known; UINT64_MAX where it went well or still runs. */
static uint64_t death_unix_ns(const struct ms_rank *rank)
{
    const bool well = rank->end == MS_PROCESS_RUNNING ||
                      (rank->end == MS_PROCESS_ENDED && !(rank->exit_known && rank->exit_status));

    return well ? UINT64_MAX : rank->start_unix_ns + rank->duration_ns;
}

const struct ms_rank *ms_merged_first_dead(const struct ms_merged *merged)
{
    const struct ms_rank *by_oom = NULL, *by_end = NULL;

    for (size_t i = 0; i < rank_count(merged); i++) {
        const struct ms_rank *rank = rank_at(merged, i);

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

static uint64_t median_peak(const struct ms_merged *merged, bool by_live)
{
    struct ms_buffer sorted = {0};
    const size_t count = rank_count(merged);
    uint64_t *values = ms_buffer_extend(&sorted, count * sizeof(*values));
    uint64_t median = 0;

    if (values && count > 0) {
        for (size_t i = 0; i < count; i++) {
            values[i] = peak_of(rank_at(merged, i), by_live);
        }
        qsort(values, count, sizeof(*values), by_value);
        median = values[(count - 1) / 2];
    }
    ms_buffer_free(&sorted);
    return median;
}

static struct ms_outlier find_outlier(const struct ms_merged *merged, bool by_live)
{
    struct ms_outlier found = {.by_live = by_live, .median_bytes = median_peak(merged, by_live)};
    uint64_t furthest = found.median_bytes / 10;

    for (size_t i = 0; rank_count(merged) > 2 && i < rank_count(merged); i++) {
        const uint64_t peak = peak_of(rank_at(merged, i), by_live);
        const uint64_t distance =
            peak > found.median_bytes ? peak - found.median_bytes : found.median_bytes - peak;

        if (distance > furthest) {
            furthest = distance;
            found.rank = rank_at(merged, i);
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

/* The middle of what each process holds, of which `count` hold more than nothing; sorts them. */
static uint64_t median_of(uint64_t *bytes, size_t count, size_t processes)
{
    const size_t middle = (processes - 1) / 2, zeros = processes - count;

    qsort(bytes, count, sizeof(*bytes), by_value);
    return middle < zeros ? 0 : bytes[middle - zeros];
}

/* Of the holdings of one site, `count` of them. */
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
                              (size_t)(outlier.rank - rank_at(merged, 0)),
                              outlier.bytes > outlier.median_bytes, rank_count(merged),
                              (uint64_t *)scratch.at, found);
        }
    }
    ms_buffer_free(&holdings);
    ms_buffer_free(&scratch);
    return known;
}

/* ---- text ---- */

/* "rank 3", or the folder's name where it has no rank. */
static void add_name(const struct ms_rank *rank, struct ms_buffer *out)
{
    if (rank->rank >= 0) {
        ms_buffer_format(out, "rank %d", (int)rank->rank);
    } else {
        ms_buffer_add_plain(out, rank->folder);
    }
}

static void add_status(const struct ms_rank *rank, struct ms_buffer *out)
{
    if (rank->end == MS_PROCESS_ENDED && rank->exit_known) {
        ms_buffer_format(out, "exit %d", (int)rank->exit_status);
    } else {
        ms_buffer_add(out, ms_end_name(rank->end));
    }
}

static size_t host_count(const struct ms_merged *merged)
{
    size_t hosts = 0;

    for (size_t i = 0; i < rank_count(merged); i++) {
        bool seen = false;

        for (size_t j = 0; j < i && !seen; j++) {
            seen = strcmp(rank_at(merged, i)->host, rank_at(merged, j)->host) == 0;
        }
        hosts += !seen;
    }
    return hosts;
}

static const struct ms_rank *fullest(const struct ms_merged *merged)
{
    const struct ms_rank *most = NULL;

    for (size_t i = 0; i < rank_count(merged); i++) {
        const struct ms_rank *rank = rank_at(merged, i);

        most = !most || rank->peak_charged_bytes > most->peak_charged_bytes ? rank : most;
    }
    return most;
}

/* Of the only process there is. */
static void add_lone_headline(const struct ms_rank *rank, bool failed, struct ms_buffer *out)
{
    add_name(rank, out);
    ms_buffer_add(out, rank->died_of_oom ? " ran out of memory"
                       : rank->ooms > 0  ? " ran out of memory, and recovered"
                                         : " did not run out of memory");
    if (failed && !rank->died_of_oom) {
        ms_buffer_add(out, " (");
        add_status(rank, out);
        ms_buffer_add(out, ")");
    }
}

/* "1 of 2 processes ran out of memory; rank 1 died first" */
static void add_headline(const struct ms_merged *merged, struct ms_buffer *out)
{
    const struct ms_rank *dead = ms_merged_first_dead(merged);
    const struct ms_rank *shown = dead ? dead : fullest(merged);
    size_t died = 0;
    uint64_t ooms = 0;

    if (rank_count(merged) == 1) {
        add_lone_headline(shown, dead != NULL, out);
        return;
    }
    for (size_t i = 0; i < rank_count(merged); i++) {
        died += rank_at(merged, i)->died_of_oom;
        ooms += rank_at(merged, i)->ooms;
    }
    if (died > 0) {
        ms_buffer_format(out, "%zu of %zu processes ran out of memory; ", died, rank_count(merged));
    } else {
        ms_buffer_format(out, "No process %s memory%s; ",
                         ooms > 0 ? "was ended by a lack of" : "ran out of",
                         dead ? "" : ", and none failed");
    }
    if (shown) {
        add_name(shown, out);
        ms_buffer_add(out, died > 0 ? " died first" : dead ? " ended first (" : " held most");
        if (died == 0 && dead) {
            add_status(dead, out);
            ms_buffer_add(out, ")");
        }
    }
}

/* What one process's report says of it: of the first that died, else of the one that held most. */
static void add_answer(const struct ms_merged *merged, struct ms_buffer *out)
{
    const struct ms_rank *dead = ms_merged_first_dead(merged);
    const struct ms_rank *shown = dead ? dead : fullest(merged);

    add_headline(merged, out);
    ms_buffer_add(out, ":\n");
    if (shown) {
        ms_buffer_append(out, shown->answer.at, shown->answer.bytes);
    }
}

/* Of two nobody can say which is the odd one. */
static void add_pair(const struct ms_merged *merged, struct ms_buffer *out)
{
    const struct ms_rank *most = rank_at(merged, 0), *least = rank_at(merged, 1);
    char bytes[MS_UNIT_TEXT_BYTES], fewer[MS_UNIT_TEXT_BYTES];

    if (least->peak_charged_bytes > most->peak_charged_bytes) {
        most = rank_at(merged, 1);
        least = rank_at(merged, 0);
    }
    add_name(most, out);
    ms_buffer_format(out, " held more than the other: %s charged at its peak, ",
                     ms_bytes_text(most->peak_charged_bytes, bytes, sizeof(bytes)));
    add_name(least, out);
    ms_buffer_format(out, " %s.\n", ms_bytes_text(least->peak_charged_bytes, fewer, sizeof(fewer)));
}

static void add_alike(const struct ms_merged *merged, struct ms_buffer *out)
{
    const uint64_t median_bytes = median_peak(merged, false);
    uint64_t most_bytes = 0;
    char bytes[MS_UNIT_TEXT_BYTES];

    for (size_t i = 0; i < rank_count(merged); i++) {
        const uint64_t peak_bytes = rank_at(merged, i)->peak_charged_bytes;

        most_bytes = peak_bytes > most_bytes ? peak_bytes : most_bytes;
    }
    if (rank_count(merged) == 2 && most_bytes - median_bytes > median_bytes / 10) {
        add_pair(merged, out);
        return;
    }
    ms_buffer_format(out,
                     "All processes held about as much: their peaks of charged bytes are within a "
                     "tenth of the middle one, %s.\n",
                     ms_bytes_text(median_bytes, bytes, sizeof(bytes)));
}

static void add_outlier(const struct ms_merged *merged, struct ms_buffer *out)
{
    if (rank_count(merged) < 2) {
        return;
    }

    char peak[MS_UNIT_TEXT_BYTES], middle[MS_UNIT_TEXT_BYTES];
    const struct ms_outlier outlier = ms_merged_outlier(merged);

    if (outlier.rank) {
        add_name(outlier.rank, out);
        ms_buffer_format(out, " stands out: its peak %swas %s, the median of all is %s.\n",
                         outlier.by_live ? "of live bytes " : "",
                         ms_bytes_text(outlier.bytes, peak, sizeof(peak)),
                         ms_bytes_text(outlier.median_bytes, middle, sizeof(middle)));
    } else {
        add_alike(merged, out);
    }
}

static void add_outlier_site(const struct ms_merged *merged, struct ms_buffer *out)
{
    char bytes[MS_UNIT_TEXT_BYTES], middle[MS_UNIT_TEXT_BYTES];
    struct ms_outlier_site site;

    if (ms_merged_outlier_site(merged, &site)) {
        ms_buffer_add(out, "  most of that: ");
        ms_site_match_add_line(&merged->match, site.site, out);
        ms_buffer_format(out, ": %s there, %s in the median process.\n",
                         ms_bytes_text(site.bytes, bytes, sizeof(bytes)),
                         ms_bytes_text(site.median_bytes, middle, sizeof(middle)));
    }
}

static void add_row(const struct ms_rank *rank, struct ms_buffer *out)
{
    char live[MS_UNIT_TEXT_BYTES], reserved[MS_UNIT_TEXT_BYTES], charged[MS_UNIT_TEXT_BYTES];
    char cap[MS_UNIT_TEXT_BYTES], share[MS_UNIT_TEXT_BYTES], fragmentation[MS_UNIT_TEXT_BYTES];
    char number[16] = "-";

    if (rank->rank >= 0) {
        snprintf(number, sizeof(number), "%d", (int)rank->rank);
    }
    if (rank->fragmentation_ppm < 0) {
        snprintf(fragmentation, sizeof(fragmentation), "-");
    } else {
        ms_percent_text((uint64_t)rank->fragmentation_ppm, 1000000, fragmentation,
                        sizeof(fragmentation));
    }
    ms_buffer_format(
        out, "  %4s  %6d  %11s  %11s  %11s  %11s  %7s  %7s  %5" PRIu64 "  ", number,
        rank->main_device, ms_bytes_text(rank->peak_live_bytes, live, sizeof(live)),
        ms_bytes_text(rank->peak_reserved_bytes, reserved, sizeof(reserved)),
        ms_bytes_text(rank->peak_charged_bytes, charged, sizeof(charged)),
        ms_bytes_text(rank->cap_bytes, cap, sizeof(cap)),
        ms_percent_text(rank->peak_charged_bytes, rank->cap_bytes, share, sizeof(share)),
        fragmentation, rank->ooms);
    add_status(rank, out);
    ms_buffer_add(out, rank->died_of_oom ? ", out of memory   " : "   ");
    ms_buffer_add_plain(out, rank->folder);
    ms_buffer_add(out, "\n");
}

void ms_merged_text(const struct ms_merged *merged, struct ms_buffer *out)
{
    char date[MS_UNIT_TEXT_BYTES], duration[MS_UNIT_TEXT_BYTES];
    uint64_t start = UINT64_MAX, end = 0;

    for (size_t i = 0; i < rank_count(merged); i++) {
        const struct ms_rank *rank = rank_at(merged, i);

        start = rank->start_unix_ns < start ? rank->start_unix_ns : start;
        end = rank->start_unix_ns + rank->duration_ns > end
                  ? rank->start_unix_ns + rank->duration_ns
                  : end;
    }
    ms_buffer_add(out, "memshim  run ");
    ms_buffer_add_plain(out, rank_count(merged) ? rank_at(merged, 0)->run_id : "");
    ms_date_text(start, date, sizeof(date));
    ms_buffer_format(out, "  %zu process%s on %zu host%s   %.10s %.5s UTC   ran %s\n",
                     rank_count(merged), rank_count(merged) == 1 ? "" : "es", host_count(merged),
                     host_count(merged) == 1 ? "" : "s", date, date + 11,
                     ms_duration_text(end > start ? end - start : 0, duration, sizeof(duration)));
    add_answer(merged, out);
    add_outlier(merged, out);
    add_outlier_site(merged, out);
    ms_buffer_add(out, "\n  rank  device    peak live     reserved      charged          cap"
                       "    share   fragm.   ooms  ended\n");
    for (size_t i = 0; i < rank_count(merged); i++) {
        add_row(rank_at(merged, i), out);
    }
    ms_buffer_add(out, "\nEach folder holds that process's own report.txt, report.json and "
                       "timeline.json; report.html is the page of all.\n");
}

/* ---- JSON ---- */

static void add_rank(struct ms_json *json, const struct ms_rank *rank)
{
    ms_json_open(json, NULL, '{');
    ms_json_text(json, "folder", rank->folder);
    if (rank->rank >= 0) {
        ms_json_integer(json, "rank", rank->rank);
    } else {
        ms_json_null(json, "rank");
    }
    ms_json_integer(json, "pid", rank->pid);
    ms_json_text(json, "host", rank->host);
    ms_json_text(json, "state", ms_end_name(rank->end));
    if (rank->end == MS_PROCESS_ENDED && rank->exit_known) {
        ms_json_integer(json, "exit", rank->exit_status);
    } else {
        ms_json_null(json, "exit");
    }
    ms_json_count(json, "peak_live_bytes", rank->peak_live_bytes);
    ms_json_count(json, "peak_reserved_bytes", rank->peak_reserved_bytes);
    ms_json_count(json, "peak_charged_bytes", rank->peak_charged_bytes);
    ms_json_count(json, "cap_bytes", rank->cap_bytes);
    ms_json_count(json, "oom_events", rank->ooms);
    ms_json_flag(json, "died_of_oom", rank->died_of_oom);
    ms_json_close(json, '}');
}

void ms_merged_json_run(const struct ms_merged *merged, struct ms_json *json)
{
    const struct ms_rank *dead = ms_merged_first_dead(merged);
    const struct ms_outlier outlier = ms_merged_outlier(merged);
    struct ms_buffer headline = {0};
    struct ms_outlier_site site;

    ms_json_text(json, "schema", SCHEMA);
    ms_json_text(json, "run_id", rank_count(merged) ? rank_at(merged, 0)->run_id : "");
    add_headline(merged, &headline);
    ms_json_part(json, "headline", headline.at ? headline.at : "", headline.bytes);
    ms_buffer_free(&headline);
    ms_json_text(json, "first_dead", dead ? dead->folder : NULL);
    ms_json_text(json, "outlier", outlier.rank ? outlier.rank->folder : NULL);
    if (ms_merged_outlier_site(merged, &site)) {
        ms_json_open(json, "outlier_site", '{');
        ms_site_match_json(&merged->match, site.site, json);
        ms_json_count(json, "bytes", site.bytes);
        ms_json_count(json, "median_bytes", site.median_bytes);
        ms_json_close(json, '}');
    } else {
        ms_json_null(json, "outlier_site");
    }
    ms_json_open(json, "ranks", '[');
    for (size_t i = 0; i < rank_count(merged); i++) {
        add_rank(json, rank_at(merged, i));
    }
    ms_json_close(json, ']');
}

void ms_merged_json(const struct ms_merged *merged, struct ms_buffer *out)
{
    struct ms_json json = {.out = out};

    ms_json_open(&json, NULL, '{');
    ms_merged_json_run(merged, &json);
    ms_json_open(&json, "processes", '[');
    if (merged->members.bytes > 0 && !merged->members.failed) {
        char *members = ms_buffer_extend(out, merged->members.bytes);

        if (members) {
            memcpy(members, merged->members.at, merged->members.bytes);
            json.started = true;
        }
    }
    ms_json_close(&json, ']');
    ms_json_close(&json, '}');
    ms_buffer_add(out, "\n");
}
