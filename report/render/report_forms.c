/* SPDX-License-Identifier: Apache-2.0 */
/* report.txt and report.json as forms: the report of one process, or the merged one of several. */
#include "report/render/forms.h"
#include "report/render/json/report.h"
#include "report/render/text/report.h"

void ms_form_text(struct ms_forms *forms, const struct ms_model *model,
                  const struct ms_merged *merged)
{
    if (model && !ms_forms_is_merged(forms)) {
        ms_format_text(model, &forms->out);
    } else if (!model && ms_forms_is_merged(forms)) {
        ms_merged_text(merged, forms->of_run, &forms->out);
    }
}

void ms_form_json(struct ms_forms *forms, const struct ms_model *model,
                  const struct ms_merged *merged)
{
    if (model && !ms_forms_is_merged(forms)) {
        ms_format_json(model, &forms->out);
    } else if (!model && ms_forms_is_merged(forms)) {
        ms_merged_json(merged, &forms->out);
    }
}
