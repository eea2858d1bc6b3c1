/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a dry run's answer about time. Work ends at once on the simulated GPU; on a real one
 * it ends somewhere between that and the moment when the host waits for it. */
#include "report/render/commands/dry_run_parts.h"

#include "allocator/base/arithmetic.h"
#include "allocator/base/units.h"

/* Pages and blocks of two runs may differ by so much by chance. */
#define NOISE_BYTES ((uint64_t)2 << 20)

static const char *const names[MS_GROUND_COUNT] = {"PyTorch alone", "with expandable segments",
                                                   "under memshim"};
static const char *const keys[MS_GROUND_COUNT] = {"torch", "expandable", "memshim"};

/* For the rank that needs most. */
static uint64_t needs(const struct ms_dry_answer *answer, int ground)
{
    uint64_t most = 0;

    for (size_t i = 0; i < ms_dry_rank_count(answer); i++) {
        const struct ms_dry_rank *rank = ms_dry_rank_at(answer, i);

        if (rank->replayed && rank->needs.charged_bytes[ground] > most) {
            most = rank->needs.charged_bytes[ground];
        }
    }
    return most;
}

static uint64_t peak(const struct ms_dry_answer *answer)
{
    const struct ms_dry_rank *rank = ms_dry_largest_rank(answer);

    return rank ? rank->peak_live_bytes : 0;
}

static bool differ(uint64_t a, uint64_t b)
{
    return ms_apart(a, b) > NOISE_BYTES;
}

static bool agree(const struct ms_dry_answer *answer)
{
    bool same = !differ(peak(answer), peak(answer->late));

    for (int ground = 0; ground < MS_GROUND_COUNT; ground++) {
        same = same && !differ(needs(answer, ground), needs(answer->late, ground));
    }
    return same;
}

static void add_interval(uint64_t early, uint64_t late, struct ms_buffer *out)
{
    const uint64_t least = early < late ? early : late, most = early < late ? late : early;

    ms_buffer_format(out, "%s", MS_BYTES(least));
    if (differ(least, most)) {
        ms_buffer_format(out, " to %s", MS_BYTES(most));
    }
}

/* Cards for which the schedule decides whether the run fits. */
static void add_cards(const struct ms_dry_answer *answer, struct ms_buffer *out)
{
    const char *before = "\n           it decides whether PyTorch alone fits: ";

    for (size_t i = 0; i < answer->card_count; i++) {
        const struct ms_dry_card_row early = ms_dry_card_row(answer, i);
        const struct ms_dry_card_row late = ms_dry_card_row(answer->late, i);

        if (early.fit.known && late.fit.known &&
            early.fit.fits[MS_GROUND_TORCH] != late.fit.fits[MS_GROUND_TORCH]) {
            ms_buffer_format(out, "%s%s", before, answer->cards[i].id);
            before = ", ";
        }
    }
}

void ms_dry_schedules_text(const struct ms_dry_answer *answer, struct ms_buffer *out)
{
    if (!answer->late) {
        ms_buffer_add(out, "  order    work ended at once in this run. On a GPU, memory that other "
                           "streams use is held\n           longer: --schedules both runs the "
                           "command a second time to include that\n");
        return;
    }
    if (agree(answer)) {
        ms_buffer_add(out, "  order    the same, whether work ends at once or only when the host "
                           "waits for it\n");
        return;
    }
    ms_buffer_add(out,
                  "  order    from work that ends at once to work that ends only when the host "
                  "waits for it:\n           held ");
    add_interval(peak(answer), peak(answer->late), out);
    for (int ground = 0; ground < MS_GROUND_COUNT; ground++) {
        ms_buffer_format(out, "; %s ", names[ground]);
        add_interval(needs(answer, ground), needs(answer->late, ground), out);
    }
    add_cards(answer, out);
    ms_buffer_add(out, "\n");
}

void ms_dry_schedules_json(const struct ms_dry_answer *answer, struct ms_json *json)
{
    if (!answer->late) {
        return;
    }
    ms_json_open(json, "late", '{');
    ms_json_flag(json, "agrees", agree(answer));
    ms_json_count(json, "peak_held_bytes", peak(answer->late));
    ms_json_open(json, "needs_bytes", '{');
    for (int ground = 0; ground < MS_GROUND_COUNT; ground++) {
        ms_json_count(json, keys[ground], needs(answer->late, ground));
    }
    ms_json_close(json, '}');
    ms_json_close(json, '}');
}
