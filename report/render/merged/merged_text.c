/* SPDX-License-Identifier: Apache-2.0 */
/* The report of several processes as text. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/units.h"
#include "report/render/merged/merged.h"

/* "rank 3", or the folder's name without a rank. */
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
    if (rank->exit_known) {
        ms_buffer_format(out, "exit %d", (int)rank->exit_status);
    } else {
        ms_buffer_add(out, ms_end_name(rank->end));
    }
}

static size_t host_count(const struct ms_merged *merged)
{
    size_t hosts = 0;

    for (size_t i = 0; i < ms_merged_count(merged); i++) {
        bool seen = false;

        for (size_t j = 0; j < i && !seen; j++) {
            seen = strcmp(ms_merged_rank(merged, i)->host, ms_merged_rank(merged, j)->host) == 0;
        }
        hosts += !seen;
    }
    return hosts;
}

static const struct ms_rank *fullest(const struct ms_merged *merged)
{
    const struct ms_rank *most = NULL;

    for (size_t i = 0; i < ms_merged_count(merged); i++) {
        const struct ms_rank *rank = ms_merged_rank(merged, i);

        most = !most || rank->peak_charged_bytes > most->peak_charged_bytes ? rank : most;
    }
    return most;
}

/* For a single process. */
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

static bool clocks_differ(const struct ms_merged *merged)
{
    bool differ = false;

    for (size_t i = 0; i < ms_merged_count(merged); i++) {
        differ |= ms_merged_rank(merged, i)->clock_ahead_ns != 0;
    }
    return differ;
}

void ms_merged_add_headline(const struct ms_merged *merged, struct ms_buffer *out)
{
    const struct ms_rank *dead = ms_merged_first_dead(merged);
    const struct ms_rank *shown = dead ? dead : fullest(merged);
    size_t died = 0;
    uint64_t ooms = 0;

    if (ms_merged_count(merged) == 1) {
        add_lone_headline(shown, dead != NULL, out);
        return;
    }
    for (size_t i = 0; i < ms_merged_count(merged); i++) {
        died += ms_merged_rank(merged, i)->died_of_oom;
        ooms += ms_merged_rank(merged, i)->ooms;
    }
    if (died > 0) {
        ms_buffer_format(out, "%zu of %zu processes ran out of memory; ", died,
                         ms_merged_count(merged));
    } else {
        ms_buffer_format(out, "No process %s memory%s; ",
                         ooms > 0 ? "was ended by a lack of" : "ran out of",
                         dead ? "" : ", and none failed");
    }
    if (shown) {
        add_name(shown, out);
        ms_buffer_add(out, died > 0 ? " died first" : dead ? " ended first (" : " held most");
        if (died > 1 && host_count(merged) > 1) {
            ms_buffer_add(out, clocks_differ(merged) ? ", by the output folder's clock"
                                                     : ", by the hosts' own clocks");
        }
        if (died == 0 && dead) {
            add_status(dead, out);
            ms_buffer_add(out, ")");
        }
    }
}

/* The answer of one process's report: of the first that died, else of the one with the most
 * memory. */
static void add_answer(const struct ms_merged *merged, struct ms_buffer *out)
{
    const struct ms_rank *dead = ms_merged_first_dead(merged);
    const struct ms_rank *shown = dead ? dead : fullest(merged);

    ms_merged_add_headline(merged, out);
    ms_buffer_add(out, ":\n");
    if (shown) {
        ms_buffer_append(out, shown->answer.at, shown->answer.bytes);
    }
}

/* Of two processes neither is the outlier. */
static void add_pair(const struct ms_merged *merged, struct ms_buffer *out)
{
    const struct ms_rank *most = ms_merged_rank(merged, 0), *least = ms_merged_rank(merged, 1);
    char bytes[MS_UNIT_TEXT_BYTES], fewer[MS_UNIT_TEXT_BYTES];

    if (least->peak_charged_bytes > most->peak_charged_bytes) {
        most = ms_merged_rank(merged, 1);
        least = ms_merged_rank(merged, 0);
    }
    add_name(most, out);
    ms_buffer_format(out, " held more than the other: %s charged at its peak, ",
                     ms_bytes_text(most->peak_charged_bytes, bytes, sizeof(bytes)));
    add_name(least, out);
    ms_buffer_format(out, " %s.\n", ms_bytes_text(least->peak_charged_bytes, fewer, sizeof(fewer)));
}

static void add_alike(const struct ms_merged *merged, struct ms_buffer *out)
{
    const uint64_t median_bytes = ms_merged_median_peak(merged, false);
    uint64_t most_bytes = 0;
    char bytes[MS_UNIT_TEXT_BYTES];

    for (size_t i = 0; i < ms_merged_count(merged); i++) {
        const uint64_t peak_bytes = ms_merged_rank(merged, i)->peak_charged_bytes;

        most_bytes = peak_bytes > most_bytes ? peak_bytes : most_bytes;
    }
    if (ms_merged_count(merged) == 2 && most_bytes - median_bytes > median_bytes / 10) {
        add_pair(merged, out);
        return;
    }
    ms_buffer_format(out,
                     "All processes held about the same: their peaks of charged bytes are within a "
                     "tenth of the median, %s.\n",
                     ms_bytes_text(median_bytes, bytes, sizeof(bytes)));
}

static void add_outlier(const struct ms_merged *merged, struct ms_buffer *out)
{
    if (ms_merged_count(merged) < 2) {
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

/* The versions of memshim that recorded the processes, if there are several. */
static void add_versions(const struct ms_merged *merged, struct ms_buffer *out)
{
    size_t versions = 0;

    for (size_t i = 0; i < ms_merged_count(merged); i++) {
        const char *version = ms_merged_rank(merged, i)->version;
        size_t before = 0, processes = 0;

        for (size_t j = 0; j < ms_merged_count(merged); j++) {
            const bool same = strcmp(ms_merged_rank(merged, j)->version, version) == 0;

            before += same && j < i;
            processes += same;
        }
        if (before > 0 || processes == ms_merged_count(merged)) {
            continue;
        }
        ms_buffer_add(out, versions == 0 ? "Recorded by different versions of memshim: " : ", ");
        ms_buffer_add_plain(out, version);
        ms_buffer_format(out, " (%zu process%s, such as ", processes, processes == 1 ? "" : "es");
        add_name(ms_merged_rank(merged, i), out);
        ms_buffer_add(out, ")");
        versions++;
    }
    ms_buffer_add(out, versions > 0 ? ".\n" : "");
}

/* Hosts whose clocks differ from that of the output folder, each once. */
static void add_clocks(const struct ms_merged *merged, struct ms_buffer *out)
{
    char apart[MS_UNIT_TEXT_BYTES];

    for (size_t i = 0; i < ms_merged_count(merged); i++) {
        const struct ms_rank *rank = ms_merged_rank(merged, i);
        const uint64_t ahead_ns = (uint64_t)rank->clock_ahead_ns;
        bool said = rank->clock_ahead_ns == 0;

        for (size_t j = 0; j < i && !said; j++) {
            said = ms_merged_rank(merged, j)->clock_ahead_ns != 0 &&
                   strcmp(ms_merged_rank(merged, j)->host, rank->host) == 0;
        }
        if (!said) {
            const bool behind = rank->clock_ahead_ns < 0;

            ms_buffer_add_plain(out, rank->host);
            ms_buffer_format(
                out, "'s clock was %s %s the output folder's. Times here are the folder's.\n",
                ms_duration_text(behind ? 0 - ahead_ns : ahead_ns, apart, sizeof(apart)),
                behind ? "behind" : "ahead of");
        }
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

static bool is_of_several_runs(const struct ms_merged *merged)
{
    bool several = false;

    for (size_t i = 1; i < ms_merged_count(merged); i++) {
        several |=
            strcmp(ms_merged_rank(merged, i)->run_id, ms_merged_rank(merged, 0)->run_id) != 0;
    }
    return several;
}

void ms_merged_text(const struct ms_merged *merged, bool of_run, struct ms_buffer *out)
{
    char date[MS_UNIT_TEXT_BYTES], duration[MS_UNIT_TEXT_BYTES];
    uint64_t start = UINT64_MAX, end = 0;

    for (size_t i = 0; i < ms_merged_count(merged); i++) {
        const struct ms_rank *rank = ms_merged_rank(merged, i);

        start = rank->start_unix_ns < start ? rank->start_unix_ns : start;
        end = rank->start_unix_ns + rank->duration_ns > end
                  ? rank->start_unix_ns + rank->duration_ns
                  : end;
    }
    ms_buffer_add(out, "memshim  run ");
    ms_buffer_add_plain(out, ms_merged_count(merged) ? ms_merged_rank(merged, 0)->run_id : "");
    ms_buffer_add(out, is_of_several_runs(merged) ? " and others" : "");
    ms_date_text(start, date, sizeof(date));
    ms_buffer_format(out, "  %zu process%s on %zu host%s   %.10s %.5s UTC   ran %s\n",
                     ms_merged_count(merged), ms_merged_count(merged) == 1 ? "" : "es",
                     host_count(merged), host_count(merged) == 1 ? "" : "s", date, date + 11,
                     ms_duration_text(end > start ? end - start : 0, duration, sizeof(duration)));
    add_answer(merged, out);
    add_outlier(merged, out);
    add_outlier_site(merged, out);
    add_versions(merged, out);
    add_clocks(merged, out);
    ms_buffer_add(out, "\n  rank  device    peak live     reserved      charged          cap"
                       "    share   fragm.   ooms  ended\n");
    for (size_t i = 0; i < ms_merged_count(merged); i++) {
        add_row(ms_merged_rank(merged, i), out);
    }
    if (of_run) {
        ms_buffer_add(out, "\nEach folder holds that process's own report.txt, report.json and "
                           "timeline.json; report.html, beside them, is the page of all.\n");
    }
}
