/* SPDX-License-Identifier: Apache-2.0 */
/* The words for a leak: its line and its pace. */
#include "allocator/base/units.h"
#include "report/model/leaks.h"
#include "report/model/site_rows.h"

void ms_leak_add_line(const struct ms_model *model, const struct ms_leak *leak,
                      struct ms_buffer *out)
{
    if (leak->has_culprit) {
        ms_frame_add_line(&leak->culprit, out);
    } else {
        ms_site_add_line(model, leak->all.site, out);
    }
}

void ms_leak_add_rate(const struct ms_growing_site *row, double bytes_per_round,
                      struct ms_buffer *out)
{
    static const char *const rounds[] = {"step", "backward pass", "call"};

    if (row->round == MS_ROUND_TIME) {
        ms_buffer_format(out, "%s an hour", MS_BYTES((uint64_t)row->bytes_per_hour));
    } else {
        ms_buffer_format(out, "%s a %s", MS_BYTES((uint64_t)bytes_per_round), rounds[row->round]);
    }
}

bool ms_leak_is_each_time(const struct ms_leak *leak)
{
    return leak->all.degree == MS_GROWTH_LIKELY && leak->bytes_each_time > 0;
}

void ms_leak_add_pace(const struct ms_leak *leak, bool asks, struct ms_buffer *out)
{
    const struct ms_growing_site *all = &leak->all;
    const char *has = asks ? "has asked for" : "has kept", *in = asks ? " in segments" : "";

    if (ms_leak_is_each_time(leak)) {
        const bool less = leak->bytes_each_time * all->rounds > all->grown_bytes;

        ms_buffer_format(out, "%s %s%s more%s %s times, %s in all", has, less ? "up to " : "",
                         MS_BYTES(leak->bytes_each_time), in, MS_COUNT(all->rounds),
                         MS_BYTES(all->grown_bytes));
        return;
    }
    switch (all->round) {
    case MS_ROUND_TIME:
        ms_buffer_format(out, "%s, %s an hour",
                         asks ? "asks for more and more segments" : "keeps more and more",
                         MS_BYTES((uint64_t)all->bytes_per_hour));
        break;
    case MS_ROUND_STEP:
        ms_buffer_format(out, "%s %s more%s every step", has,
                         MS_BYTES((uint64_t)all->bytes_per_round), in);
        if (all->since_step > 0) {
            ms_buffer_format(out, " since step %s", MS_COUNT(all->since_step));
        }
        break;
    default:
        ms_buffer_format(out, "%s %s more%s with every %s", has,
                         MS_BYTES((uint64_t)all->bytes_per_round), in,
                         all->round == MS_ROUND_PASS ? "backward pass" : "call of a model");
        break;
    }
}
