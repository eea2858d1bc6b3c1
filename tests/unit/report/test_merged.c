/* SPDX-License-Identifier: Apache-2.0 */
/* Several ranks side by side. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "report/model/reading/read_model.h"
#include "report/read/traces.h"
#include "report/render/merged/merged.h"
#include "synthetic.h"

static const char *folder;

static void hold(ms_trace_t *trace, uint64_t id, uint32_t site, uint64_t bytes)
{
    const struct ms_event block = {
        .kind = MS_EVENT_BLOCK_ALLOC, .id = id, .addr = id << 40, .bytes = bytes, .site = site};

    ms_trace_emit(trace, &block);
}

/* One rank that charges so much at its peak, and runs out of memory after so many events. */
static void rank(int number, uint64_t peak_bytes, int dies_at_ms)
{
    struct ms_trace_config config = synthetic_config(folder);
    struct ms_oom_state state = synthetic_oom(30 * GIB, MS_OOM_TORCH);

    config.process.rank = number;
    config.process.pid = 100 + number;
    config.process.host = number < 8 ? "node-a" : "node-b";
    config.process.start_unix_ns = 0;

    ms_trace_t *trace = ms_trace_open(&config, NULL, 0);
    const struct ms_event chunk = {.kind = MS_EVENT_CHUNK_CREATE, .id = 1, .bytes = peak_bytes};

    ms_trace_device(trace, 0, "GPU", NULL, 24 * GIB, 23 * GIB);
    ms_trace_emit(trace, &chunk);
    synthetic_define(trace);
    hold(trace, 1, 5, GIB);
    hold(trace, 2, 9, peak_bytes / 4);
    hold(trace, 3, 11, 4 * GIB);
    if (dies_at_ms) {
        ms_trace_oom(trace, 0, &state);
    }
    ms_trace_close(trace, true, dies_at_ms ? 1 : 0);
}

static void merge(struct ms_merged *merged)
{
    struct ms_buffer traces = {0};
    char why[512] = "";

    ms_merged_begin(merged);
    cr_assert(ms_traces_find(folder, &traces, why, sizeof(why)), "%s", why);
    for (size_t i = 0; i < ms_traces_count(&traces); i++) {
        struct ms_model *model = ms_model_new(ms_traces_at(&traces, i), why, sizeof(why));

        cr_assert_not_null(model, "%s", why);
        ms_model_name_sites(model, MS_STACKS_NAMES, NULL);
        ms_merged_add(merged, model);
        ms_model_delete(model);
    }
    ms_buffer_free(&traces);
}

Test(merged, ranks_in_order_the_first_dead_and_the_outlier)
{
    struct ms_merged merged;

    folder = synthetic_folder();
    for (int i = 0; i < 12; i++) {
        /* Rank 3 dies before rank 7 does. */
        rank(i, (i == 10 ? 20 : 10) * GIB, i == 3 || i == 7);
    }
    merge(&merged);
    cr_assert_eq(merged.ranks.bytes / sizeof(struct ms_rank), 12);
    for (int i = 0; i < 12; i++) {
        cr_assert_eq(((struct ms_rank *)merged.ranks.at)[i].rank, i, "2 comes before 10");
    }
    cr_assert_eq(ms_merged_first_dead(&merged)->rank, 3);
    const struct ms_outlier outlier = ms_merged_outlier(&merged);

    cr_assert_eq(outlier.rank->rank, 10);
    cr_assert_eq(outlier.median_bytes, 10 * GIB);

    struct ms_outlier_site site;

    cr_assert(ms_merged_outlier_site(&merged, &site));
    cr_assert_eq(site.bytes, 5 * GIB);
    cr_assert_eq(site.median_bytes, 10 * GIB / 4);

    struct ms_buffer out = {0};

    ms_merged_text(&merged, true, &out);
    *(char *)ms_buffer_extend(&out, 1) = '\0';
    cr_assert_not_null(strstr(out.at, "12 processes on 2 hosts"), "%s", out.at);
    cr_assert_not_null(
        strstr(out.at, "rank 3 died first, by the hosts' own clocks:\nOUT OF MEMORY after"));
    cr_assert_not_null(strstr(out.at, ": asked for 30.00 GiB"));
    cr_assert_not_null(strstr(out.at, "\n2 of 12 processes ran out of memory; rank 3"));
    cr_assert_not_null(strstr(out.at, "rank 10 stands out: its peak was 20.00 GiB"));
    cr_assert_not_null(strstr(out.at, "most of that: train.py:209 in step: 5.00 GiB there, "
                                      "2.50 GiB in the median process"),
                       "%s", out.at);
    ms_buffer_free(&out);
    ms_merged_free(&merged);
}

Test(merged, one_process_alone_is_not_counted)
{
    struct ms_merged merged;
    struct ms_buffer out = {0};

    folder = synthetic_folder();
    rank(0, 10 * GIB, 1);
    merge(&merged);
    ms_merged_text(&merged, true, &out);
    *(char *)ms_buffer_extend(&out, 1) = '\0';
    cr_assert_not_null(strstr(out.at, "\nrank 0 ran out of memory:\nOUT OF MEMORY after"), "%s",
                       out.at);
    cr_assert_null(strstr(out.at, "died first"));
    ms_buffer_free(&out);
    ms_merged_free(&merged);
}

Test(merged, a_run_that_went_well)
{
    struct ms_merged merged;

    folder = synthetic_folder();
    for (int i = 0; i < 3; i++) {
        rank(i, 10 * GIB, 0);
    }
    merge(&merged);
    cr_assert_null(ms_merged_first_dead(&merged));
    cr_assert_null(ms_merged_outlier(&merged).rank);

    struct ms_outlier_site site;

    cr_assert_not(ms_merged_outlier_site(&merged, &site));
    ms_merged_free(&merged);
}
