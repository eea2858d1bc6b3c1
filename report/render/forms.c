/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the forms, and how one is made. */
#include "report/render/forms.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const struct ms_form_row ms_form_rows[MS_FORM_COUNT] = {
#define FORM(id, function, name, file, traits, help) {name, file, help, traits, ms_form_##function},
#include "report/render/forms.def"
#undef FORM
};

bool ms_form_find(const char *name, enum ms_form *form)
{
    for (int i = 0; i < MS_FORM_COUNT; i++) {
        if (strcmp(ms_form_rows[i].name, name) == 0) {
            *form = (enum ms_form)i;
            return true;
        }
    }
    return false;
}

enum ms_form ms_form_with(enum ms_form_trait trait)
{
    int form = 0;

    while (form < MS_FORM_COUNT - 1 && !ms_form_has((enum ms_form)form, trait)) {
        form++;
    }
    return (enum ms_form)form;
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

void ms_forms_take(struct ms_forms *forms, const struct ms_model *model)
{
    ms_form_rows[forms->form].function(forms, model, NULL);
    forms->processes++;
}

bool ms_forms_end(struct ms_forms *forms, const struct ms_merged *merged)
{
    ms_form_rows[forms->form].function(forms, NULL, merged);
    return !forms->failed;
}

void ms_forms_free(struct ms_forms *forms)
{
    ms_buffer_free(&forms->out);
    ms_buffer_free(&forms->complaints);
    ms_pprof_free(&forms->pprof);
}

void ms_forms_complain(struct ms_forms *forms, const char *format, ...)
{
    char line[PATH_MAX + 512];
    va_list values;

    va_start(values, format);
    (void)vsnprintf(line, sizeof(line), format, values);
    va_end(values);
    ms_buffer_append(&forms->complaints, line, strlen(line) + 1);
}
