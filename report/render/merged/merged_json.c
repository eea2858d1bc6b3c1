/* SPDX-License-Identifier: Apache-2.0 */
/* The report of several processes as JSON. */
#include <string.h>

#include "report/render/merged/merged.h"

#define SCHEMA "memshim-run-report/1"

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
    if (rank->exit_known) {
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
    ms_json_text(json, "run_id", ms_merged_count(merged) ? ms_merged_rank(merged, 0)->run_id : "");
    ms_merged_add_headline(merged, &headline);
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
    for (size_t i = 0; i < ms_merged_count(merged); i++) {
        add_rank(json, ms_merged_rank(merged, i));
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
