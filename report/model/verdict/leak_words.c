/* SPDX-License-Identifier: Apache-2.0 */
/* The words for a leak: its line and its pace. */
#include "allocator/base/units.h"
#include "report/model/site_rows.h"
#include "report/model/verdict/leaks.h"

/* How far apart the times are at which something is kept, in steps: */
#define LEAST_PAUSE 1.5 /* from here on it comes every few steps, */
#define LEAST_EACH  0.9 /* from here on in each step, and below several times in one */

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

uint64_t ms_leak_each_time(const struct ms_leak *leak)
{
    const struct ms_growing_site *all = &leak->all;

    return leak->bytes_each_time > 0
               ? leak->bytes_each_time
               : (uint64_t)(all->bytes_per_round * (all->every > 1 ? all->every : 1));
}

bool ms_leak_is_each_time(const struct ms_leak *leak)
{
    return leak->all.degree == MS_GROWTH_LIKELY && leak->bytes_each_time > 0;
}

static const char *unit_of(const struct ms_growing_site *row, bool several)
{
    static const char *const one[] = {"step", "backward pass", "call of a model"};
    static const char *const more[] = {"steps", "backward passes", "calls of a model"};

    return (several ? more : one)[row->round];
}

/* Whether it comes once in several steps. */
static bool has_pauses(const struct ms_growing_site *row)
{
    return row->every >= LEAST_PAUSE;
}

static uint64_t whole_every(const struct ms_growing_site *row)
{
    return (uint64_t)(row->every + 0.5);
}

void ms_leak_add_every(const struct ms_growing_site *row, const char *in, struct ms_buffer *out)
{
    if (!has_pauses(row)) {
        ms_buffer_format(out, "%s more%s %s %s", MS_BYTES((uint64_t)row->bytes_per_round), in,
                         row->round == MS_ROUND_STEP ? "every" : "with every", unit_of(row, false));
        return;
    }
    ms_buffer_format(out, "%s more%s about every %s %s (",
                     MS_BYTES((uint64_t)(row->bytes_per_round * row->every)), in,
                     MS_COUNT(whole_every(row)), unit_of(row, true));
    ms_leak_add_rate(row, row->bytes_per_round, out);
    ms_buffer_add(out, " on average)");
}

/* How often it was seen, as far as that is known: in a step of several passes it may be each of
 * them. */
static void add_times(const struct ms_growing_site *row, struct ms_buffer *out)
{
    if (has_pauses(row)) {
        ms_buffer_format(out, "%s times (once in about %s %s)", MS_COUNT(row->rounds),
                         MS_COUNT(whole_every(row)), unit_of(row, true));
    } else if (row->every >= LEAST_EACH) {
        ms_buffer_format(out, "%s each of %s %s", row->round == MS_ROUND_STEP ? "in" : "with",
                         MS_COUNT(row->rounds), unit_of(row, true));
    } else {
        ms_buffer_format(out, "%s times", MS_COUNT(row->rounds));
    }
}

static void add_each_time(const struct ms_leak *leak, const char *in, struct ms_buffer *out)
{
    const struct ms_growing_site *all = &leak->all;
    const bool less = leak->bytes_each_time * all->rounds > all->grown_bytes;

    ms_buffer_format(out, "%s%s more%s ", less ? "up to " : "", MS_BYTES(leak->bytes_each_time),
                     in);
    add_times(all, out);
    ms_buffer_format(out, ", %s in all%s", MS_BYTES(all->grown_bytes),
                     all->round == MS_ROUND_CALL ? " before the latest one" : "");
}

static const char *why_likely(const struct ms_leak *leak)
{
    return leak->all.degree == MS_GROWTH_SEEN ? NULL
           : leak->all.round == MS_ROUND_CALL ? "as no step ended in between"
           : leak->all.rounds == 0            ? "as fewer than 8 steps were seen"
           : leak->all.every <= 0 ? "as only the amount shows it: no one step needs so much"
           : leak->all.rounds < MS_GROWTH_FEWEST ? "as it was seen fewer than 8 times"
                                                 : "as most of it was seen fewer than 8 times";
}

void ms_leak_add_pace(const struct ms_leak *leak, bool asks, struct ms_buffer *out)
{
    const struct ms_growing_site *all = &leak->all;
    const char *in = asks ? " in segments" : "";

    if (all->round == MS_ROUND_TIME) {
        ms_buffer_format(out, "%s, %s an hour",
                         asks ? "asks for more and more segments" : "keeps more and more",
                         MS_BYTES((uint64_t)all->bytes_per_hour));
        return;
    }
    ms_buffer_add(out, asks ? "has asked for " : "has kept ");
    if (ms_leak_is_each_time(leak)) {
        add_each_time(leak, in, out);
    } else {
        ms_leak_add_every(all, in, out);
        if (all->round == MS_ROUND_STEP && all->since_step > 0) {
            ms_buffer_format(out, " since step %s", MS_COUNT(all->since_step));
        }
    }
    if (why_likely(leak)) {
        ms_buffer_format(out, "; only likely, %s", why_likely(leak));
    }
}
