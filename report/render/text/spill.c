/* SPDX-License-Identifier: Apache-2.0 */
/* report.txt: memory that was on the host. */
#include "allocator/base/units.h"
#include "report/model/ledger.h"
#include "report/model/moved_lines.h"
#include "report/render/text/parts.h"

#define LISTED_SITES 8
#define WORTH_SAYING 100u /* less than 1/n of live memory slows nobody */

/* Both figures are rounded up: less would not have been enough. */
static void add_enough(struct ms_buffer *out, const struct ms_aggregate *sums)
{
    const uint64_t cap_bytes = ms_cap_without_spill(sums);
    const uint64_t total_bytes = sums->now.total_bytes;
    char fraction[MS_UNIT_TEXT_BYTES];

    ms_buffer_format(out, "    with a cap of %s~ nothing would have had to move",
                     MS_BYTES(cap_bytes + cap_bytes / 200));
    if (cap_bytes <= total_bytes && total_bytes > 0) {
        ms_buffer_format(out, " (fraction %s)\n",
                         ms_decimal_text(ms_fraction_without_spill(sums, 1000) * 1000, fraction,
                                         sizeof(fraction)));
    } else {
        ms_buffer_add(out, "; the device has less\n");
    }
}

void ms_text_add_spill(struct ms_buffer *out, const struct ms_model *model, int device)
{
    const struct ms_aggregate *sums = &model->devices[device].sums;
    struct ms_buffer lines = {0};

    ms_buffer_format(out,
                     "  spilled to host memory: %s in %s moves; back: %s in %s; the device waited "
                     "%s for the moves\n",
                     MS_BYTES(sums->spilled_bytes), MS_COUNT(sums->kind_events[MS_EVENT_SPILL]),
                     MS_BYTES(sums->promoted_bytes), MS_COUNT(sums->kind_events[MS_EVENT_PROMOTE]),
                     MS_DURATION(sums->held_ns));
    if (sums->kind_events[MS_EVENT_USE] > 0) {
        ms_buffer_format(out, "    used there over the bus: %s~ in %s uses\n",
                         MS_BYTES(sums->host_use_bytes), MS_COUNT(sums->host_uses));
    }
    add_enough(out, sums);
    ms_moved_lines(model, device, &lines);
    for (size_t i = 0; i < ms_moved_line_count(&lines) && i < LISTED_SITES; i++) {
        const struct ms_moved_line *line = (const struct ms_moved_line *)lines.at + i;

        ms_buffer_format(out, "    %11s in %s blocks, back %s: %s\n", MS_BYTES(line->spilled_bytes),
                         MS_COUNT(line->spilled_blocks), MS_BYTES(line->promoted_bytes),
                         line->text.at);
    }
    ms_moved_lines_free(&lines);
}

/* Part of the answer: nothing else shows why a run was slow. */
void ms_text_add_host(struct ms_buffer *out, const struct ms_model *model, int device,
                      const struct ms_counters *counters)
{
    const struct ms_aggregate *sums = &model->devices[device].sums;
    const uint64_t there = ms_ledger_least_on_host(counters);

    if (sums->spilled_bytes > 0) {
        ms_buffer_format(out,
                         "  spill  the device ran short of memory: %s moved to the host, %s moved "
                         "back; the device's work waited %s for that\n",
                         MS_BYTES(sums->spilled_bytes), MS_BYTES(sums->promoted_bytes),
                         MS_DURATION(sums->held_ns));
    } else if (there > ms_counters_live(counters) / WORTH_SAYING) {
        ms_buffer_format(out,
                         "  host   at least %s of live memory lay on the host when %s, and work on "
                         "it is slow: not moved (MEMSHIM_SPILL), but made there, in holes whose "
                         "device memory was in use elsewhere\n",
                         MS_BYTES(there),
                         ms_model_fatal_oom(model) ? "memory ran out" : "live bytes peaked");
    }
}
