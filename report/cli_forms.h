/* What `memshim report` can write: one form, of one process or of several together. */
#ifndef MEMSHIM_REPORT_CLI_FORMS_H
#define MEMSHIM_REPORT_CLI_FORMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/buffer.h"
#include "report/formats.h"
#include "report/merged.h"
#include "report/moment.h"
#include "report/pprof.h"

enum ms_form {
    MS_FORM_TEXT,
    MS_FORM_JSON,
    MS_FORM_HTML,
    MS_FORM_TIMELINE,
    MS_FORM_FOLDED,
    MS_FORM_PPROF,
    MS_FORM_SNAPSHOT,
    MS_FORM_CSV,
    MS_FORM_COUNT
};

#define MS_FORM_NAMES "text, json, html, timeline, folded, pprof, torch-snapshot or csv"

/* False where there is none of that name. */
bool ms_form_find(const char *name, enum ms_form *form);

const char *ms_form_name(enum ms_form form);

/* Whether the form can tell of one process only. */
bool ms_form_is_of_one(enum ms_form form);

/* Whether the form shows what a survey tells. */
bool ms_form_wants_survey(enum ms_form form);

/* What may be chosen of some forms. */
struct ms_form_choice {
    int device; /* csv; -1: the one with most events */
    bool at;    /* torch-snapshot: `moment` was named; else the out-of-memory that ended the run, or
                   its peak */
    struct ms_moment_name moment;
};

struct ms_forms {
    enum ms_form form;
    size_t expected; /* processes, if all can be read */
    struct ms_form_choice choice;
    size_t processes;
    uint64_t start_unix_ns; /* time 0 of a timeline */
    struct ms_buffer out;
    struct ms_json json;
    struct ms_page page;
    struct ms_pprof pprof;
    bool failed; /* and said on stderr why */
};

void ms_forms_begin(struct ms_forms *forms, enum ms_form form, size_t expected,
                    const struct ms_form_choice *choice);

/* One process more in a page; says on stderr where it has no room. */
void ms_forms_add_page(struct ms_page *page, const struct ms_model *model);

/* One process more; ctx is the struct ms_forms. */
void ms_forms_take(void *ctx, const struct ms_model *model);

/* Completes `out`. merged: of the same processes, at least one. False where it failed. */
bool ms_forms_end(struct ms_forms *forms, const struct ms_merged *merged);

void ms_forms_free(struct ms_forms *forms);

#endif
