#include "report/cli_forms.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "report/exports.h"

#define EARLIER_NS UINT64_C(3600000000000)
#define WHY_BYTES  (PATH_MAX + 512)

static const char *const names[MS_FORM_COUNT] = {
    [MS_FORM_TEXT] = "text",
    [MS_FORM_JSON] = "json",
    [MS_FORM_HTML] = "html",
    [MS_FORM_TIMELINE] = "timeline",
    [MS_FORM_FOLDED] = "folded",
    [MS_FORM_PPROF] = "pprof",
    [MS_FORM_SNAPSHOT] = "torch-snapshot",
    [MS_FORM_CSV] = "csv",
};

bool ms_form_find(const char *name, enum ms_form *form)
{
    for (int i = 0; i < MS_FORM_COUNT; i++) {
        if (strcmp(names[i], name) == 0) {
            *form = (enum ms_form)i;
            return true;
        }
    }
    return false;
}

const char *ms_form_name(enum ms_form form)
{
    return names[form];
}

bool ms_form_is_of_one(enum ms_form form)
{
    return form == MS_FORM_CSV || form == MS_FORM_SNAPSHOT;
}

bool ms_form_wants_survey(enum ms_form form)
{
    return form == MS_FORM_TEXT || form == MS_FORM_JSON || form == MS_FORM_HTML ||
           form == MS_FORM_TIMELINE;
}

void ms_forms_begin(struct ms_forms *forms, enum ms_form form, size_t expected,
                    const struct ms_form_choice *choice)
{
    memset(forms, 0, sizeof(*forms));
    forms->form = form;
    forms->expected = expected;
    forms->choice = *choice;
    forms->json = (struct ms_json){.out = &forms->out, .dense = true};
    ms_pprof_begin(&forms->pprof);
}

/* Several meet on the wall clock, told since a while before the first of them: others may have
 * started before it, and a double has no room for the nanoseconds of a date. Two hosts may have the
 * same pid. */
static void take_timeline(struct ms_forms *forms, const struct ms_model *model)
{
    const uint64_t started_ns = model->header.start_unix_ns;
    const bool several = forms->expected > 1;

    if (forms->processes == 0) {
        forms->start_unix_ns =
            started_ns - (several && started_ns > EARLIER_NS ? EARLIER_NS : UINT64_C(0));
        ms_timeline_begin(&forms->json, forms->start_unix_ns, model->header.command);
    }
    ms_timeline_add(&forms->json, model, forms->start_unix_ns,
                    several ? (int64_t)forms->processes + 1 : model->header.pid);
}

void ms_forms_add_page(struct ms_page *page, const struct ms_model *model)
{
    if (!ms_page_add(page, model)) {
        (void)fprintf(stderr,
                      "memshim report: %s is not in the page: so many processes leave no room for "
                      "it; a page of its own: memshim report %s --format html\n",
                      model->path, model->dir);
    }
}

static void take_page(struct ms_forms *forms, const struct ms_model *model)
{
    if (forms->processes == 0) {
        ms_page_begin(&forms->page, &forms->out, forms->expected);
    }
    ms_forms_add_page(&forms->page, model);
}

static void take_folded(struct ms_forms *forms, const struct ms_model *model)
{
    const struct ms_file_header *header = &model->header;
    char name[MS_PROGRAM_BYTES + MS_HOST_BYTES + 64] = "";

    if (forms->expected > 1 && header->rank >= 0) {
        (void)snprintf(name, sizeof(name), "rank %d", (int)header->rank);
    } else if (forms->expected > 1) {
        (void)snprintf(name, sizeof(name), "%s pid %d on %s", header->program, (int)header->pid,
                       header->host);
    }
    ms_folded_add(&forms->out, model, name);
}

static void take_csv(struct ms_forms *forms, const struct ms_model *model)
{
    char why[WHY_BYTES] = "";
    uint64_t left_out = 0;

    if (!ms_csv_export(model, forms->choice.device, &forms->out, &left_out, why, sizeof(why))) {
        (void)fprintf(stderr, "memshim report: %s\n", why);
        forms->failed = true;
    } else if (left_out > 0) {
        (void)fprintf(stderr,
                      "memshim report: %s: %" PRIu64 " events are not in the csv: they, or what "
                      "they end, are older than the records\n",
                      model->path, left_out);
    }
}

static void take_snapshot(struct ms_forms *forms, const struct ms_model *model)
{
    const struct ms_moment_name usual = {.word =
                                             ms_model_fatal_oom(model) ? MS_AT_OOM : MS_AT_PEAK};
    const struct ms_moment_name *moment = forms->choice.at ? &forms->choice.moment : &usual;
    char why[WHY_BYTES] = "";

    if (!ms_snapshot_export(model, moment, &forms->out, why, sizeof(why))) {
        (void)fprintf(stderr, "memshim report: %s\n", why);
        forms->failed = true;
    }
}

void ms_forms_take(void *ctx, const struct ms_model *model)
{
    struct ms_forms *forms = ctx;

    switch (forms->form) {
    case MS_FORM_TIMELINE:
        take_timeline(forms, model);
        break;
    case MS_FORM_FOLDED:
        take_folded(forms, model);
        break;
    case MS_FORM_HTML:
        take_page(forms, model);
        break;
    case MS_FORM_PPROF:
        ms_pprof_add(&forms->pprof, model);
        break;
    case MS_FORM_SNAPSHOT:
        take_snapshot(forms, model);
        break;
    case MS_FORM_CSV:
        take_csv(forms, model);
        break;
    default: /* of several, they are of the merged report */
        if (forms->expected == 1) {
            (forms->form == MS_FORM_JSON ? ms_format_json : ms_format_text)(model, &forms->out);
        }
        break;
    }
    forms->processes++;
}

bool ms_forms_end(struct ms_forms *forms, const struct ms_merged *merged)
{
    switch (forms->form) {
    case MS_FORM_TIMELINE:
        ms_timeline_end(&forms->json);
        break;
    case MS_FORM_HTML:
        ms_page_end(&forms->page, merged);
        break;
    case MS_FORM_PPROF:
        if (!ms_pprof_end(&forms->pprof, &forms->out)) {
            (void)fprintf(stderr, "memshim report: no memory to write the profile\n");
            forms->failed = true;
        }
        break;
    case MS_FORM_TEXT:
    case MS_FORM_JSON:
        if (forms->expected > 1) {
            (forms->form == MS_FORM_JSON ? ms_merged_json : ms_merged_text)(merged, &forms->out);
        }
        break;
    default:
        break;
    }
    return !forms->failed;
}

void ms_forms_free(struct ms_forms *forms)
{
    ms_buffer_free(&forms->out);
    ms_pprof_free(&forms->pprof);
}
