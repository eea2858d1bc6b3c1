/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds in the survey: backward passes, and calls of a model between them. When memory ran out,
 * memory from earlier rounds that is still live shows what is kept. */
#include <stdlib.h>
#include <string.h>

#include "report/model/survey/state.h"
#include "report/model/verdict_report.h"

#define NS_PER_HOUR 3.6e12
#define MOST_LET_GO 8u /* a part in so many of kept memory */
#define FEWEST_CALLS \
    8u /* calls without a backward pass between them: one step may call this often */
#define FEWEST_PASSES 4u /* without tensors */

/* ---- as it happens ---- */

/* Without tensors: a line that called a model, then another that did, then the first again: so a
 * loop around them came round. A backward pass shows the same. */
static bool has_turned(struct ms_rounds *rounds, uint32_t caller)
{
    uint32_t place = 0;

    while (place < MS_ROUND_CALLERS && rounds->callers[place] != caller) {
        place++;
    }
    rounds->turned |= rounds->phase > 0 || (place > 0 && place < MS_ROUND_CALLERS && caller > 0);
    if (place > 0) {
        memmove(rounds->callers + 1, rounds->callers,
                (MS_ROUND_CALLERS - 1) * sizeof(*rounds->callers));
        rounds->callers[0] = caller;
    }
    return rounds->turned;
}

void ms_rounds_allocation(struct ms_rounds *rounds, const struct ms_model *model, uint32_t site)
{
    const struct ms_doings *doings = ms_landmarks_of(model->landmarks, site);
    const enum ms_doing doing = (enum ms_doing)doings->doing;

    if (doing <= MS_DOING_ASIDE) {
        return;
    }
    if (doing == MS_DOING_BACKWARD) {
        const struct ms_site_definition *is = ms_definitions_site(model->definitions, site);

        rounds->phase += rounds->phase % 2 == 0;
        rounds->calling = false;
        /* An autograd worker that computes a part of the model again has Python frames of its
         * own. */
        if (is && is->python && is->thread != MS_THREAD_BACKWARD) {
            rounds->backward_site = site;
        }
        return;
    }
    rounds->phase += rounds->phase % 2;
    /* If only a framework's segments are visible, a steady loop makes none: segments that recur
     * after it came round are from call after call. */
    const bool another = doing == MS_DOING_FORWARD && rounds->hides_tensors &&
                         has_turned(rounds, doings->caller) && site == rounds->site;

    if (doing == MS_DOING_FORWARD && (!rounds->calling || another)) {
        rounds->calls++;
    }
    rounds->calling = doing == MS_DOING_FORWARD;
    rounds->site = site;
}

/* The number of passes completed when it was allocated. */
static uint64_t round_of(uint32_t phase)
{
    return ((uint64_t)phase + 1) / 2;
}

bool ms_rounds_let_go(const struct ms_rounds *rounds, const struct ms_live *died)
{
    const uint64_t now = rounds->phase / 2, born = round_of(died->born_phase);

    return now >= born + 2 ||
           (now == born && rounds->phase % 2 == 0 && rounds->calls >= died->born_epoch + 2);
}

void ms_rounds_begin(struct ms_rounds *rounds, uint32_t phase)
{
    rounds->phase = phase > rounds->phase ? phase : rounds->phase;
}

/* ---- when memory ran out ---- */

/* One live block or tensor. */
struct kept {
    uint32_t site, caller;
    uint64_t round, call, bytes, born_ns;
};

static int by_site_and_time(const void *a, const void *b)
{
    const struct kept *left = a, *right = b;

    if (left->site != right->site) {
        return left->site < right->site ? -1 : 1;
    }
    if (left->round != right->round) {
        return left->round < right->round ? -1 : 1;
    }
    return left->call < right->call ? -1 : left->call > right->call;
}

/* Memory in use is not kept: of the current round only memory from earlier calls counts. */
static void gather(const struct ms_sampler *sampler, const struct ms_live_set *live,
                   struct ms_buffer *all)
{
    const struct ms_rounds *now = sampler->rounds;

    for (size_t i = 0; i < ms_live_room(live); i++) {
        const struct ms_live *is = ms_live_at(live, i);
        const uint64_t round = round_of(is->born_phase);
        struct kept *kept = NULL;

        if (is->key != 0 && is->device == sampler->device && is->site != 0 &&
            (round < now->phase / 2 || (round == now->phase / 2 && is->born_epoch < now->calls))) {
            kept = ms_buffer_extend(all, sizeof(*kept));
        }
        if (kept) {
            *kept = (struct kept){.site = is->site,
                                  .caller = is->caller,
                                  .round = round,
                                  .call = is->born_epoch,
                                  .bytes = is->bytes,
                                  .born_ns = is->born_ns};
        }
    }
    if (all->bytes > 0) {
        qsort(all->at, all->bytes / sizeof(struct kept), sizeof(struct kept), by_site_and_time);
    }
}

/* Sums up bytes by round; within the current round, by call. */
static size_t sum_up(const struct kept *kept, size_t count, bool by_call, uint64_t now,
                     struct ms_kept_round *rounds)
{
    size_t used = 0;

    for (size_t i = 0; i < count; i++) {
        const uint64_t round = by_call ? kept[i].call : kept[i].round;

        if (by_call && kept[i].round != now) {
            continue;
        }
        if (used == 0 || rounds[used - 1].round != round) {
            rounds[used++] = (struct ms_kept_round){.round = round};
        }
        rounds[used - 1].bytes += kept[i].bytes;
    }
    return used;
}

static uint64_t sum_of(const struct ms_kept_round *rounds, size_t count)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        bytes += rounds[i].bytes;
    }
    return bytes;
}

/* Steps for each backward pass; 0: unknown. */
static double steps_a_pass(const struct ms_model *model)
{
    const uint64_t steps = model->steps.count > 0    ? model->steps.count
                           : model->recurrence.known ? model->recurrence.count
                                                     : 0;

    return steps > 0 && model->recurrence.passes > 0
               ? (double)steps / (double)model->recurrence.passes
               : 0;
}

static void take_row(struct ms_sampler *sampler, const struct kept *kept, size_t count,
                     const struct ms_kept_round *rounds, size_t round_count, bool by_call,
                     enum ms_growth_degree degree, uint64_t time_ns)
{
    const struct ms_sampled_site *site = &sampler->sites[kept->site];
    const uint64_t first = rounds[0].round;
    const double apart = round_count > 1 ? (double)(rounds[round_count - 1].round - first) /
                                               (double)(round_count - 1)
                                         : 1;
    const double steps = by_call ? 0 : steps_a_pass(sampler->model);
    struct ms_growing_site *row = ms_buffer_extend(&sampler->kept, sizeof(*row));

    if (!row) {
        return;
    }
    *row = (struct ms_growing_site){
        .site = kept->site,
        .path_site = site->path_site ? site->path_site : kept->site,
        .kind = site->kind,
        .degree = (uint8_t)degree,
        .round = steps > 0 ? MS_ROUND_STEP
                 : by_call ? MS_ROUND_CALL
                           : MS_ROUND_PASS,
        .rounds = round_count,
        .since_ns = time_ns,
    };
    for (size_t i = 0; i < count; i++) {
        const uint64_t round = by_call ? kept[i].call : kept[i].round;

        if (round >= first && kept[i].born_ns < row->since_ns) {
            row->since_ns = kept[i].born_ns;
        }
    }
    row->grown_bytes = sum_of(rounds, round_count);
    row->bytes_per_round =
        (double)row->grown_bytes / (double)round_count / apart / (steps > 0 ? steps : 1);
    row->since_step = ms_step_at(sampler->model, row->since_ns);
    row->bytes_per_hour =
        time_ns > row->since_ns
            ? (double)row->grown_bytes / (double)(time_ns - row->since_ns) * NS_PER_HOUR
            : 0;
}

/* Without tensors: a framework's cache grows in the first passes, too, until it is as large as it
 * stays. */
static bool is_of_cache_by_pass(const struct ms_rounds *now, size_t rounds)
{
    return now->hides_tensors && rounds < FEWEST_PASSES;
}

/* Without tensors: as many segments as shared a call are those of one more pass like the first. */
static bool is_of_cache_by_call(const struct ms_rounds *now, size_t segments, size_t rounds)
{
    return now->hides_tensors && rounds <= segments - rounds;
}

static void judge(struct ms_sampler *sampler, const struct kept *kept, size_t count,
                  struct ms_kept_round *rounds, uint64_t time_ns)
{
    const uint64_t now = sampler->rounds->phase / 2;
    enum ms_growth_degree degree;
    size_t first, used = sum_up(kept, count, false, now, rounds);

    /* It keeps memory for a while only. */
    if (sampler->sites[kept->site].let_go_bytes > sum_of(rounds, used) / MOST_LET_GO) {
        return;
    }
    if (ms_growth_of_rounds(rounds, used, now, &first, &degree) &&
        !is_of_cache_by_pass(sampler->rounds, used - first)) {
        take_row(sampler, kept, count, rounds + first, used - first, false, degree, time_ns);
        return;
    }
    used = sum_up(kept, count, true, now, rounds);
    if (ms_growth_of_rounds(rounds, used, sampler->rounds->calls, &first, &degree) &&
        used - first >= FEWEST_CALLS &&
        !is_of_cache_by_call(sampler->rounds, count, used - first)) {
        take_row(sampler, kept, count, rounds + first, used - first, true, MS_GROWTH_LIKELY,
                 time_ns);
    }
}

/* Notes for whom a site of autograd's workers kept its memory. Several lines may call autograd for
 * the same operation, and one of them may keep the results. */
static void note_parts(struct ms_sampler *sampler, const struct kept *kept, size_t count)
{
    const size_t first = sampler->parts.bytes / sizeof(struct ms_kept_part);

    for (size_t i = 0; i < count; i++) {
        struct ms_kept_part *parts = (struct ms_kept_part *)sampler->parts.at;
        const size_t end = sampler->parts.bytes / sizeof(*parts);
        size_t at = first;

        while (at < end && parts[at].caller != kept[i].caller) {
            at++;
        }

        struct ms_kept_part *part =
            at < end ? &parts[at] : ms_buffer_extend(&sampler->parts, sizeof(*part));

        if (part) {
            part->bytes = (at < end ? part->bytes : 0) + kept[i].bytes;
            part->site = kept[i].site;
            part->caller = kept[i].caller;
        }
    }
}

void ms_sampler_note_kept(struct ms_sampler *sampler, const struct ms_live_set *live,
                          uint64_t time_ns)
{
    struct ms_buffer all = {0}, rounds = {0};

    gather(sampler, live, &all);

    const struct kept *kept = (const struct kept *)all.at;
    const size_t count = all.bytes / sizeof(*kept);

    sampler->kept.bytes = sampler->parts.bytes = 0;
    if (count > 0 && ms_buffer_extend(&rounds, count * sizeof(struct ms_kept_round))) {
        for (size_t i = 0, end = 0; i < count; i = end) {
            for (end = i + 1; end < count && kept[end].site == kept[i].site; end++) {
            }
            judge(sampler, kept + i, end - i, (struct ms_kept_round *)rounds.at, time_ns);
            if (sampler->sites[kept[i].site].backward) {
                note_parts(sampler, kept + i, end - i);
            }
        }
    }
    ms_buffer_free(&rounds);
    ms_buffer_free(&all);
}
