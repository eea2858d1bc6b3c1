/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the forms of a report (forms.def), and how each is made, for one process or for
 * several together. */
#ifndef MEMSHIM_REPORT_RENDER_FORMS_H
#define MEMSHIM_REPORT_RENDER_FORMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "report/model/moment.h"
#include "report/render/formats.h"
#include "report/render/merged/merged.h"
#include "report/render/pprof.h"

enum ms_form {
#define FORM(id, function, name, file, traits, help) MS_FORM_##id,
#include "report/render/forms.def"
#undef FORM
    MS_FORM_COUNT
};

enum ms_form_trait {
    MS_FORM_SURVEY = 1,        /* shows results of the survey and of what-if replays */
    MS_FORM_ADDRESSES = 2,     /* and the survey's maps: MS_SURVEY_WHOLE */
    MS_FORM_OF_ONE = 4,        /* can show only one process */
    MS_FORM_OF_RUN = 8,        /* has a file in the folder of a run, too */
    MS_FORM_TAKES_DEVICE = 16, /* ms_form_choice.device */
    MS_FORM_TAKES_MOMENT = 32, /* ms_form_choice.moment */
    MS_FORM_HAS_SOURCE = 64,   /* ms_form_choice.no_source */
};

/* Choices for some forms. */
struct ms_form_choice {
    int device; /* -1: the one with most events */
    bool at;    /* `moment` was given; else it is the out-of-memory that ended the run, or its
                   peak */
    struct ms_moment_name moment;
    bool no_source; /* no lines of source in the page */
};

/* One form being made. */
struct ms_forms {
    enum ms_form form;
    size_t expected; /* processes, if all are readable */
    bool of_run;     /* for a run's own folder: a merged report even of one process */
    struct ms_form_choice choice;
    size_t processes;
    struct ms_buffer out;
    struct ms_buffer complaints; /* lines for stderr, each ended by a zero byte */
    bool failed;                 /* `complaints` says why */
    uint64_t start_unix_ns;      /* time 0 of a timeline */
    struct ms_json json;
    struct ms_page page;
    struct ms_pprof pprof;
};

/* Adds one process; or, if model is null, completes the form. merged then has the same processes,
 * at least one; else it is null. */
typedef void ms_form_function_t(struct ms_forms *forms, const struct ms_model *model,
                                const struct ms_merged *merged);

#define FORM(id, function, name, file, traits, help) ms_form_function_t ms_form_##function;
#include "report/render/forms.def"
#undef FORM

struct ms_form_row {
    const char *name, *file, *help;
    unsigned traits; /* enum ms_form_trait */
    ms_form_function_t *function;
};

extern const struct ms_form_row ms_form_rows[MS_FORM_COUNT];

static inline bool ms_form_has(enum ms_form form, enum ms_form_trait trait)
{
    return ms_form_rows[form].traits & trait;
}

/* False: there is no form of that name. */
bool ms_form_find(const char *name, enum ms_form *form);

/* The first form with that trait. */
enum ms_form ms_form_with(enum ms_form_trait trait);

void ms_forms_begin(struct ms_forms *forms, enum ms_form form, size_t expected,
                    const struct ms_form_choice *choice);

/* Adds one process. */
void ms_forms_take(struct ms_forms *forms, const struct ms_model *model);

/* Completes `out`. merged: of the same processes, at least one. False: it failed. */
bool ms_forms_end(struct ms_forms *forms, const struct ms_merged *merged);

void ms_forms_free(struct ms_forms *forms);

/* For the functions of forms: whether it is the merged report, not that of one process. */
static inline bool ms_forms_is_merged(const struct ms_forms *forms)
{
    return forms->expected > 1 || forms->of_run;
}

/* For the functions of forms: adds a line for stderr. */
void ms_forms_complain(struct ms_forms *forms, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
