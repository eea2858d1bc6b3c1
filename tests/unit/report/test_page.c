/* SPDX-License-Identifier: Apache-2.0 */
/* The page stays small whatever the run was; frames by number. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/model/reading/read_model.h"
#include "report/model/survey/take.h"
#include "report/read/traces.h"
#include "report/render/formats.h"
#include "report/render/json/report.h"
#include "report/render/merged/merged.h"
#include "report/symbols/frame_table.h"
#include "synthetic.h"

#define LONG_NAME 20000
#define SITES     600
#define OOMS      20000

Test(page, a_frame_has_one_number)
{
    struct ms_frame_table table = {0};
    char names[5000][16];

    for (size_t i = 0; i < 5000; i++) {
        snprintf(names[i], sizeof(names[i]), "f%zu", i / 2);

        const struct ms_frame frame = {
            .function = names[i], .file = "a.py", .line = 1 + (uint32_t)i % 2};

        cr_assert_eq(ms_frame_table_add(&table, &frame), i);
    }
    for (size_t i = 0; i < 5000; i++) {
        char name[16];

        snprintf(name, sizeof(name), "f%zu", i / 2);

        const struct ms_frame same = {.function = name, .file = "a.py", .line = 1 + i % 2};
        const struct ms_frame elsewhere = {.function = names[i], .line = 1 + i % 2};

        cr_assert_eq(ms_frame_table_add(&table, &same), i);
        cr_assert_geq(ms_frame_table_add(&table, &elsewhere), 5000);
    }
    cr_assert_eq(ms_frame_table_count(&table), 10000);
    cr_assert_str_eq(ms_frame_table_at(&table, 4999)->function, "f2499");
    ms_frame_table_free(&table);
}

/* A site whose one frame has a name of so many bytes, and a block that it asked for. */
static void tell_site(ms_trace_t *trace, uint32_t id)
{
    static struct {
        struct ms_code_definition is;
        char texts[LONG_NAME];
    } code;
    const struct ms_python_definition frame = {.id = id, .code = id, .flags = MS_PYTHON_ENTRY};
    const struct ms_site_definition site = {.id = id, .python = id, .thread = MS_THREAD_PYTHON};
    const struct ms_event block = {
        .kind = MS_EVENT_BLOCK_ALLOC, .id = id, .bytes = id * MIB, .site = id};

    code.is = (struct ms_code_definition){
        .id = id, .version = 3 << 8 | 11, .first_line = 1, .function_bytes = LONG_NAME};
    memset(code.texts, 'x', sizeof(code.texts));
    code.texts[snprintf(code.texts, sizeof(code.texts), "name %u", id)] = 'x';
    cr_assert(ms_trace_define(trace, MS_DEFINE_CODE, &code, sizeof(code)));
    cr_assert(ms_trace_define(trace, MS_DEFINE_PYTHON, &frame, sizeof(frame)));
    cr_assert(ms_trace_define(trace, MS_DEFINE_SITE, &site, sizeof(site)));
    ms_trace_emit(trace, &block);
}

static void tell_run(const char *output)
{
    struct synthetic run;
    ms_trace_t *trace = synthetic_open(output);
    struct ms_oom_state state = synthetic_oom(30 * GIB, MS_OOM_TORCH);

    synthetic_begin(&run, trace, 1);
    for (uint32_t id = 1; id <= SITES; id++) {
        tell_site(trace, id);
    }
    for (int i = 0; i < OOMS; i++) {
        ms_trace_oom(trace, 0, &state);
    }
    ms_trace_close(trace, true, 0);
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;

    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part)) {
        count++;
    }
    return count;
}

/* So many processes share the page that one has no room at all. */
static void expect_said(const struct ms_model *model)
{
    struct ms_buffer html = {0};
    struct ms_merged merged;
    struct ms_page page;

    ms_merged_begin(&merged);
    ms_merged_add(&merged, model);
    ms_page_begin(&page, &html, 5000, false);
    cr_expect_not(ms_page_add(&page, model));
    ms_page_end(&page, &merged);
    ms_buffer_append(&html, "", 1);
    cr_expect_not_null(strstr(html.at, "\"processes\":[],\"processes_left_out\":1"));
    ms_merged_free(&merged);
    ms_buffer_free(&html);
}

/* Pages of one and of eight such processes: none is left out. */
Test(page, is_small)
{
    struct ms_buffer json = {0};
    char why[512] = "";
    const char *folder = synthetic_folder();

    tell_run(folder);

    char latest[PATH_MAX];

    snprintf(latest, sizeof(latest), "%s/latest", folder);

    struct ms_buffer traces = {0};

    cr_assert(ms_traces_find(latest, &traces, why, sizeof(why)), "%s", why);

    struct ms_model *model = ms_model_new(ms_traces_at(&traces, 0), why, sizeof(why));

    cr_assert_not_null(model, "%s", why);
    ms_model_name_sites(model, MS_STACKS_NAMES, NULL);
    ms_format_json(model, &json);
    cr_assert_gt(json.bytes, MS_PAGE_MOST_BYTES, "%zu bytes fit a page", json.bytes);
    ms_model_survey(model, MS_SURVEY_WHOLE);
    for (size_t processes = 1; processes <= 8; processes += 7) {
        struct ms_buffer html = {0};
        struct ms_merged merged;
        struct ms_page page;

        ms_merged_begin(&merged);
        ms_page_begin(&page, &html, processes, false);
        for (size_t i = 0; i < processes; i++) {
            ms_merged_add(&merged, model);
            cr_expect(ms_page_add(&page, model));
        }
        ms_page_end(&page, &merged);
        cr_expect_lt(html.bytes, MS_PAGE_MOST_BYTES);
        ms_buffer_append(&html, "", 1);
        cr_expect_eq(count_of(html.at, "\"main_device\":"), processes);
        cr_expect_not_null(strstr(html.at, "\"function\":\"name 600x"),
                           "the largest holder is there");
        cr_expect_null(strstr(html.at, "\"function\":\"name 1x"), "the smallest is left out");
        cr_expect_not_null(strstr(html.at, "</html>"));
        ms_merged_free(&merged);
        ms_buffer_free(&html);
    }
    expect_said(model);
    ms_model_delete(model);
    ms_buffer_free(&json);
    ms_buffer_free(&traces);
}
