/* SPDX-License-Identifier: Apache-2.0 */
/* report.txt: who empties PyTorch's cache, and the cost. */
#include "allocator/base/units.h"
#include "report/model/site_rows.h"
#include "report/model/survey.h"
#include "report/render/text/parts.h"

#define WORTH_CALLS 8u /* fewer are not worth a line */
#define LINES       3u

void ms_text_add_emptied(struct ms_buffer *out, const struct ms_model *model, int device)
{
    const struct ms_survey_device *of = model->survey ? &model->survey->devices[device] : NULL;
    struct ms_emptied emptied;

    if (!of || of->emptying_count == 0) {
        return;
    }
    emptied = ms_survey_emptied(model, device);
    if (emptied.calls < WORTH_CALLS) {
        return;
    }
    for (size_t i = 0; i < of->emptying_count && i < LINES; i++) {
        ms_buffer_add(out, i ? "         " : "  empty  ");
        ms_site_add_line(model, of->emptyings[i].site, out);
        ms_buffer_format(out, " emptied PyTorch's cache %s time%s, %s in all\n",
                         MS_COUNT(of->emptyings[i].calls), of->emptyings[i].calls == 1 ? "" : "s",
                         MS_BYTES(of->emptyings[i].bytes));
    }
    if (emptied.chunks_made == 0) {
        ms_buffer_add(
            out, "         memshim's pool kept that memory, so no chunk had to be created again\n");
        return;
    }
    ms_buffer_format(out,
                     "         since the first time %s chunk%s had to be created again, in %s "
                     "calls of the driver; without this they would have been kept\n",
                     MS_COUNT(emptied.chunks_made), emptied.chunks_made == 1 ? "" : "s",
                     MS_COUNT(emptied.driver_calls));
}
