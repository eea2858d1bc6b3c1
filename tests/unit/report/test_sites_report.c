/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites, tags and steps as the reports show them. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/checksum.h"
#include "report/model/model.h"
#include "report/model/reading/read_model.h"
#include "report/model/site_rows.h"
#include "report/render/formats.h"
#include "report/render/json/report.h"
#include "report/render/text/report.h"
#include "synthetic.h"

static struct ms_model *must_read(const char *path)
{
    char why[512];
    struct ms_model *model = ms_model_new(path, why, sizeof(why));

    cr_assert_not_null(model, "%s", why);
    ms_model_name_sites(model, MS_STACKS_NAMES, NULL);
    return model;
}

static void tell(ms_trace_t *trace, struct ms_event event)
{
    ms_trace_emit(trace, &event);
}

static void born(ms_trace_t *trace, uint64_t id, uint64_t bytes, uint32_t site)
{
    tell(trace, (struct ms_event){.kind = MS_EVENT_TENSOR_ALLOC,
                                  .id = id,
                                  .addr = 0x7f0000000000 + id * 512,
                                  .bytes = bytes,
                                  .site = site,
                                  .aux = 1});
}

static ms_trace_t *begin(void)
{
    ms_trace_t *trace = synthetic_open(synthetic_folder());
    struct synthetic run;

    synthetic_begin(&run, trace, 1);
    synthetic_define(trace);
    return trace;
}

static char *formatted(struct ms_model *model,
                       void (*format)(const struct ms_model *, struct ms_buffer *))
{
    struct ms_buffer out = {0};

    format(model, &out);
    ms_buffer_append(&out, "", 1);

    char *text = strdup(out.at);

    ms_buffer_free(&out);
    return text;
}

static void folded(const struct ms_model *model, struct ms_buffer *out)
{
    ms_folded_add(out, model, "");
}

Test(sites_report, the_lines_that_held_most)
{
    ms_trace_t *trace = begin();

    born(trace, 10, 600 * MIB, 3);
    born(trace, 11, 200 * MIB, 5);
    born(trace, 12, 100 * MIB, 3);
    born(trace, 13, 100 * MIB, 0);
    tell(trace, (struct ms_event){.kind = MS_EVENT_TENSOR_FREE, .id = 10, .bytes = 600 * MIB});
    ms_trace_close(trace, true, 0);

    struct ms_model *model = must_read(ms_trace_dir(trace));
    char *text = formatted(model, ms_format_text), *lines = formatted(model, folded);

    cr_assert_not_null(
        strstr(text, "   700.0 MiB   70.0 %  train.py:203 in step   2 allocations\n"), "%s", text);
    cr_assert_not_null(
        strstr(text, "   200.0 MiB   20.0 %  train.py:205 in step   1 allocation\n"));
    cr_assert_not_null(strstr(text, "   100.0 MiB   10.0 %  (no call site)   1 allocation\n"));
    cr_assert_not_null(
        strstr(text, "90.0 % of the live bytes have a stack; of those outside backward, 90.0 %"));
    cr_assert_str_eq(lines,
                     "main (/job/train.py:10);step (/job/train.py:203);libjob.so+0x1234 734003200\n"
                     "main (/job/train.py:10);step (/job/train.py:205);libjob.so+0x1234 209715200\n"
                     "[no call site] 104857600\n");
    free(text);
    free(lines);
    ms_model_delete(model);
}

Test(sites_report, an_out_of_memory_names_the_line_that_asked)
{
    ms_trace_t *trace = begin();
    struct ms_oom_state state = synthetic_oom(30 * GIB, MS_OOM_TORCH);

    state.site = 4;
    ms_trace_oom(trace, 0, &state);
    ms_trace_close(trace, true, 1);

    struct ms_model *model = must_read(ms_trace_dir(trace));
    char *text = formatted(model, ms_format_text), *json = formatted(model, ms_format_json);

    cr_assert_not_null(strstr(text, "\n  asked  train.py:204 in step\n"), "%s", text);
    cr_assert_not_null(strstr(json, "\"line\": \"train.py:204 in step\""));
    free(text);
    free(json);
    ms_model_delete(model);
}

static void expect_inert(const char *text)
{
    for (const char *at = text; *at; at++) {
        const unsigned char byte = (unsigned char)*at;

        cr_assert(byte == '\n' || (byte >= 0x20 && byte != 0x7f), "a control character %d", byte);
        cr_assert_neq(byte, 0xff, "no UTF-8");
    }
}

/* Site 7's function, file and tag are hostile. */
Test(sites_report, hostile_names_are_inert_in_every_form)
{
    ms_trace_t *trace = begin();
    struct ms_oom_state state = synthetic_oom(30 * GIB, MS_OOM_TORCH);

    tell(trace, (struct ms_event){.kind = MS_EVENT_TAG_BEGIN, .id = 5, .aux = 2});
    born(trace, 10, 600 * MIB, 7);
    state.site = 7;
    ms_trace_oom(trace, 0, &state);
    ms_trace_close(trace, true, 1);

    struct ms_model *model = must_read(ms_trace_dir(trace));
    char *forms[] = {formatted(model, ms_format_text), formatted(model, ms_format_json),
                     formatted(model, ms_format_timeline), formatted(model, folded)};

    for (int i = 0; i < 4; i++) {
        expect_inert(forms[i]);
        cr_assert_not_null(strstr(forms[i], "script"), "form %d shows the name", i);
    }
    cr_assert_not_null(strstr(forms[0], "a\"b;c\\x0a<script>\\x1b[2J\\xff d\\xe2\\x80\\xae\\"));
    cr_assert_null(strchr(forms[1], '<'));
    cr_assert_null(strchr(forms[2], '<'));
    cr_assert_not_null(strstr(forms[3], "a\"b\\x3bc\\x0a<script>"), "%s", forms[3]);
    for (int i = 0; i < 4; i++) {
        free(forms[i]);
    }
    ms_model_delete(model);
}

/* Names longer than any buffer, full of separators. */
Test(sites_report, long_names)
{
    ms_trace_t *trace = begin();
    static char payload[MS_DEFINITION_MAX_BYTES];
    const uint32_t length = 60000;
    const struct ms_code_definition code = {
        .id = 200, .version = 3 << 8 | 11, .first_line = 1, .function_bytes = length};
    const struct ms_python_definition python = {.id = 200, .code = 200};
    const struct ms_site_definition site = {.id = 200, .python = 200, .thread = MS_THREAD_PYTHON};

    memcpy(payload, &code, sizeof(code));
    for (uint32_t i = 0; i < length; i += 3) {
        /* NOLINTNEXTLINE(bugprone-not-null-terminated-result): names have no end of their own */
        memcpy(payload + sizeof(code) + i, i % 300 == 0 ? "a;b" : "\xe2\x82\xac", 3);
    }
    cr_assert(ms_trace_define(trace, MS_DEFINE_CODE, payload, sizeof(code) + length));
    cr_assert(ms_trace_define(trace, MS_DEFINE_PYTHON, &python, sizeof(python)));
    cr_assert(ms_trace_define(trace, MS_DEFINE_SITE, &site, sizeof(site)));
    born(trace, 10, 512, 200);
    ms_trace_close(trace, true, 0);

    struct ms_model *model = must_read(ms_trace_dir(trace));
    char *text = formatted(model, ms_format_text), *lines = formatted(model, folded);
    const char *euro = strstr(lines, "\xe2\x82\xac");

    cr_assert_null(strchr(lines, ';'));
    cr_assert_not_null(euro);
    cr_assert_null(strstr(lines, "\\xe2"), "no character is cut in two");
    cr_assert_null(strstr(text, "\\xe2"));
    cr_assert_gt(strlen(lines), length);
    free(text);
    free(lines);
    ms_model_delete(model);
}

Test(sites_report, tags_are_ranges_by_thread)
{
    ms_trace_t *trace = begin();
    const struct {
        uint8_t kind;
        uint64_t thread, tag;
    } told[] = {
        {MS_EVENT_TAG_BEGIN, 1, 1}, {MS_EVENT_TAG_BEGIN, 2, 1}, {MS_EVENT_TAG_BEGIN, 1, 2},
        {MS_EVENT_TAG_END, 2, 1},   {MS_EVENT_TAG_END, 1, 1}, /* 2 ends with it */
        {MS_EVENT_TAG_END, 1, 2},   {MS_EVENT_TAG_END, 9, 1},   {MS_EVENT_TAG_BEGIN, 1, 77},
    };

    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        tell(trace,
             (struct ms_event){.kind = told[i].kind, .id = told[i].thread, .aux = told[i].tag});
        usleep(1);
    }
    ms_trace_close(trace, true, 0);

    struct ms_model *model = must_read(ms_trace_dir(trace));
    const struct ms_model_range *all = (const struct ms_model_range *)model->tags.ranges.at;

    cr_assert_eq(model->tags.ranges.bytes, 4 * sizeof(*all));
    cr_assert_eq(all[0].thread, 1);
    cr_assert_eq(all[0].tag, 1);
    cr_assert_eq(all[1].thread, 2);
    cr_assert_eq(all[2].tag, 2);
    cr_assert_eq(all[2].end_ns, all[0].end_ns, "what was pushed within ends with it");
    cr_assert_lt(all[1].end_ns, all[0].end_ns);
    cr_assert_gt(all[1].begin_ns, all[0].begin_ns);
    cr_assert_eq(all[3].tag, 77);
    cr_assert_eq(all[3].end_ns, UINT64_MAX, "never popped");
    cr_assert_eq(model->tags.left_out, 0);
    ms_model_delete(model);
}

Test(sites_report, tags_are_bounded)
{
    enum { RANGES = 200000 };
    ms_trace_t *trace = begin();

    for (uint64_t i = 0; i < RANGES; i++) {
        tell(trace, (struct ms_event){.kind = MS_EVENT_TAG_BEGIN, .id = 1, .aux = 1});
        tell(trace, (struct ms_event){.kind = MS_EVENT_TAG_END, .id = 1, .aux = 1});
    }
    ms_trace_close(trace, true, 0);

    struct ms_model *model = must_read(ms_trace_dir(trace));
    const size_t kept = model->tags.ranges.bytes / sizeof(struct ms_model_range);

    cr_assert_gt(kept, 10000);
    cr_assert_lt(kept, 100000);
    cr_assert_eq(kept + model->tags.left_out, RANGES);
    ms_model_delete(model);
}

Test(sites_report, steps_are_counted_and_their_times_bounded)
{
    enum { STEPS = 50000 };
    ms_trace_t *trace = begin();

    for (uint64_t i = 1; i <= STEPS; i++) {
        tell(trace, (struct ms_event){.kind = MS_EVENT_STEP, .id = i, .aux = MS_STEP_NVTX});
    }
    ms_trace_close(trace, true, 0);

    struct ms_model *model = must_read(ms_trace_dir(trace));
    const struct ms_model_step *all = (const struct ms_model_step *)model->steps.times.at;
    const size_t kept = model->steps.times.bytes / sizeof(*all);
    char *json = formatted(model, ms_format_json);

    cr_assert_eq(model->steps.number, STEPS);
    cr_assert_gt(kept, 1000);
    cr_assert_lt(kept, 5000);
    for (size_t i = 0; i < kept; i++) {
        cr_assert_eq(all[i].number, i * model->steps.stride + 1);
        cr_assert(i == 0 || all[i].time_ns >= all[i - 1].time_ns);
    }
    cr_assert_gt(all[kept - 1].number, STEPS * 9 / 10);
    cr_assert_not_null(strstr(json, "\"source\": \"nvtx\""));
    cr_assert_not_null(strstr(json, "\"count\": 50000"));
    free(json);
    ms_model_delete(model);
}

Test(sites_report, sampled_sites_are_estimated)
{
    ms_trace_t *trace = begin();
    const struct ms_sampling_definition sampling = {16 << 20};
    const struct ms_site_definition rest = {.id = 100, .flags = MS_SITE_SAMPLED_OUT};

    cr_assert(ms_trace_define(trace, MS_DEFINE_SAMPLING, &sampling, sizeof(sampling)));
    cr_assert(ms_trace_define(trace, MS_DEFINE_SITE, &rest, sizeof(rest)));
    born(trace, 10, 16 * MIB, 3); /* chance 1 - 1/e: stands for 16 MiB over it */
    born(trace, 11, 8 * MIB, 100);
    ms_trace_close(trace, true, 0);

    struct ms_model *model = must_read(ms_trace_dir(trace));
    char *text = formatted(model, ms_format_text), *json = formatted(model, ms_format_json);
    char *lines = formatted(model, folded);

    cr_assert_not_null(strstr(json, "\"mean_bytes\": 16777216"));
    cr_assert_not_null(strstr(json, "\"estimated_at_peak_bytes\": 26541165"), "%s", json);
    cr_assert_not_null(strstr(json, "\"not_sampled_bytes\": 8388608"));
    cr_assert_not_null(strstr(text, "Call sites were sampled, one per 16.0 MiB"));
    cr_assert_not_null(strstr(text, "(passed over by sampling)"));
    cr_assert_not_null(strstr(lines, "[passed over by sampling] 8388608\n"));
    free(text);
    free(json);
    free(lines);
    ms_model_delete(model);
}

static void charge(ms_trace_t *trace, enum ms_owner owner, enum ms_charge_reason reason,
                   uint64_t bytes)
{
    tell(trace,
         (struct ms_event){.kind = MS_EVENT_CHARGE, .owner = owner, .bytes = bytes, .aux = reason});
}

static struct ms_kind_row row_named(const struct ms_kind_row rows[MS_KIND_ROWS], const char *name)
{
    int i = 0;

    while (i < MS_KIND_ROWS && strcmp(rows[i].name, name) != 0) {
        i++;
    }
    cr_assert_lt(i, MS_KIND_ROWS, "no kind is named %s", name);
    return rows[i];
}

/* What the driver holds stands beside the live bytes of the kinds, which stay those of the peak. */
Test(sites_report, kinds_of_what_the_driver_holds)
{
    ms_trace_t *trace = begin();
    struct ms_kind_row kinds[MS_KIND_ROWS];
    struct ms_buffer rows = {0};
    uint64_t live = 0, charged = 0;

    charge(trace, MS_OWNER_FORWARDED, MS_CHARGE_NCCL, 32 * MIB);
    charge(trace, MS_OWNER_FORWARDED, MS_CHARGE_ARRAY, 8 * MIB);
    born(trace, 10, 100 * MIB, 3);
    tell(trace, (struct ms_event){.kind = MS_EVENT_TENSOR_FREE, .id = 10, .bytes = 100 * MIB});
    charge(trace, MS_OWNER_FORWARDED, MS_CHARGE_NCCL, 16 * MIB);
    ms_trace_close(trace, true, 0);

    struct ms_model *model = must_read(ms_trace_dir(trace));
    char *json = formatted(model, ms_format_json), *text = formatted(model, ms_format_text);

    ms_site_rows(model, 0, &rows);
    ms_kind_rows(model, 0, &rows, kinds);
    ms_buffer_free(&rows);
    for (int i = 0; i < MS_KIND_ROWS; i++) {
        live += kinds[i].at_peak_bytes;
        charged += kinds[i].driver_at_peak_bytes;
    }
    cr_assert_eq(live, 100 * MIB);
    cr_assert_eq(charged, 440 * MIB);
    cr_assert_eq(row_named(kinds, "communication").driver_at_peak_bytes, 32 * MIB);
    cr_assert_eq(row_named(kinds, "communication").driver_bytes, 48 * MIB);
    cr_assert_eq(row_named(kinds, "nccl").driver_bytes, 0);
    cr_assert_eq(row_named(kinds, "arrays").driver_at_peak_bytes, 8 * MIB);
    cr_assert_eq(row_named(kinds, "context").driver_at_peak_bytes, 400 * MIB);
    cr_assert_eq(row_named(kinds, "context").at_peak_bytes, 0);
    cr_assert_not_null(strstr(json, "\"kind\": \"arrays\""));
    cr_assert_null(strstr(json, "\"kind\": \"managed\""));
    cr_assert_null(strstr(strstr(text, "What was live"), "context"));
    free(json);
    free(text);
    ms_model_delete(model);
}

static uint64_t sum_of_live(const struct ms_kind_row kinds[MS_KIND_ROWS])
{
    uint64_t live = 0;

    for (int i = 0; i < MS_KIND_ROWS; i++) {
        live += kinds[i].live_bytes;
    }
    return live;
}

/* A paged optimizer's state, if it is asked for after the peak and the run ends. */
Test(sites_report, managed_memory_that_came_after_the_peak_has_a_kind)
{
    const uint64_t addr = 0x7e0000000000;
    ms_trace_t *trace = begin();
    struct ms_kind_row kinds[MS_KIND_ROWS];
    struct ms_buffer rows = {0};

    born(trace, 10, 100 * MIB, 3);
    tell(trace, (struct ms_event){.kind = MS_EVENT_TENSOR_FREE, .id = 10, .bytes = 100 * MIB});
    tell(trace, (struct ms_event){.kind = MS_EVENT_CHARGE,
                                  .owner = MS_OWNER_FORWARDED,
                                  .addr = addr,
                                  .bytes = 8 * MIB,
                                  .site = 5,
                                  .aux = MS_CHARGE_MANAGED});
    tell(trace, (struct ms_event){.kind = MS_EVENT_BLOCK_ALLOC,
                                  .owner = MS_OWNER_FORWARDED,
                                  .id = MS_FIRST_FORWARDED_ID,
                                  .addr = addr,
                                  .bytes = 8 * MIB,
                                  .site = 5});
    ms_trace_close(trace, true, 0);

    struct ms_model *model = must_read(ms_trace_dir(trace));
    char *json = formatted(model, ms_format_json);

    ms_site_rows(model, 0, &rows);
    ms_kind_rows(model, 0, &rows, kinds);
    ms_buffer_free(&rows);
    cr_assert_eq(sum_of_live(kinds), 8 * MIB);
    cr_assert_eq(row_named(kinds, "optimizer state").live_bytes, 8 * MIB);
    cr_assert_not_null(strstr(json, "\"kind\": \"optimizer state\""), "%s", json);
    free(json);
    ms_model_delete(model);
}

/* A pass of which no allocation was sampled is not seen: counted steps would be too few. */
Test(sites_report, steps_are_not_counted_in_what_was_sampled)
{
    const struct ms_sampling_definition sampling = {16 << 20};

    for (int sampled = 0; sampled < 2; sampled++) {
        ms_trace_t *trace = begin();

        if (sampled) {
            cr_assert(ms_trace_define(trace, MS_DEFINE_SAMPLING, &sampling, sizeof(sampling)));
        }
        for (uint64_t step = 0; step < 4; step++) {
            born(trace, 10 + 2 * step, MIB, 3);
            born(trace, 11 + 2 * step, MIB, 95); /* in a backward pass */
        }
        ms_trace_close(trace, true, 0);

        struct ms_model *model = must_read(ms_trace_dir(trace));
        char *text = formatted(model, ms_format_text), *json = formatted(model, ms_format_json);

        cr_assert_eq(strstr(text, "  steps  unknown: sampled: ") != NULL, sampled, "%s", text);
        cr_assert_eq(strstr(json, "\"why\": \"sampled: ") != NULL, sampled);
        cr_assert_not_null(
            strstr(json, sampled ? "\"backward_passes\": null" : "\"backward_passes\": 4"));
        free(text);
        free(json);
        ms_model_delete(model);
    }
}

/* ---- damage ---- */

static void save(const char *path, const char *bytes, size_t count)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    cr_assert_eq(write(fd, bytes, count), (ssize_t)count);
    close(fd);
}

static struct ms_extent_header *sites_extent(char *content, size_t bytes)
{
    for (size_t at = MS_EXTENT_BYTES; at < bytes; at += MS_EXTENT_BYTES) {
        struct ms_extent_header *extent = (struct ms_extent_header *)(content + at);

        if (extent->kind == MS_EXTENT_SITES) {
            return extent;
        }
    }
    cr_assert_fail("there is one");
    return NULL;
}

static void make_forms(struct ms_model *model)
{
    free(formatted(model, ms_format_text));
    free(formatted(model, ms_format_json));
    free(formatted(model, ms_format_timeline));
    free(formatted(model, folded));
}

/* A flipped bit under the checksum costs the extent, and is said; behind a forged one it is met by
 * whoever reads the definitions. */
Test(sites_report, damaged_definitions, .timeout = 600)
{
    ms_trace_t *trace = begin();
    char path[PATH_MAX + 32];
    size_t bytes;
    uint64_t random = 9;

    for (uint32_t i = 1; i < 100; i++) {
        born(trace, i + 9, i * MIB, i);
    }
    ms_trace_close(trace, true, 0);
    snprintf(path, sizeof(path), "%s/" MS_TRACE_FILE, ms_trace_dir(trace));

    char *content = synthetic_read(path, &bytes), *copy = malloc(bytes);

    for (int i = 0; i < 400; i++) {
        memcpy(copy, content, bytes);

        struct ms_extent_header *extent = sites_extent(copy, bytes);
        const uint64_t committed = extent->committed & UINT32_MAX;
        char *payload = (char *)extent + extent->payload_offset;

        for (int flips = 0; flips < (i % 2 ? 1 : 40); flips++) {
            char *at = &payload[synthetic_random(&random) % committed];
            *at = (char)((unsigned char)*at ^ 1u << i % 8);
        }
        if (i % 2 == 0) {
            extent->payload_checksum = 0;
        }
        save(path, copy, bytes);

        struct ms_model *model = must_read(path);

        if (i % 2) {
            cr_assert_eq(model->warning_count, 1);
            cr_assert_not_null(strstr(model->warnings.at, "call sites are damaged"));
            cr_assert_eq(ms_definitions_site_count(model->definitions), 0);
        }
        cr_assert(model->sums_exact);
        make_forms(model);
        ms_model_delete(model);
    }
    free(copy);
    free(content);
}
