/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds in the survey: backward passes, and calls of a model between them. When memory ran out,
 * memory from earlier rounds that is still live shows what is kept. */
#include <stdlib.h>
#include <string.h>

#include "report/model/step_of.h"
#include "report/model/survey/state.h"

#define MOST_LET_GO 8u /* 1/n of what a site keeps may be freed again */
/* One step may call a model several times; this many calls without a backward pass are more. */
#define FEWEST_CALLS   8u
#define FEWEST_PASSES  4u /* without tensors */
#define FEWEST_TRAINED 2u /* passes that show what training is */
#define MOST_OF_A_STEP 8u /* a step makes at most n times the bytes of all else */
/* While a block is made anew, and longer, it is there twice. If all that grew so is less than 1/n
 * of live memory, it only follows something else that gets longer. */
#define MADE_LONGER_PARTS 3u

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

static bool has_trained(const struct ms_rounds *rounds, uint32_t caller)
{
    for (size_t i = 0; i < MS_ROUND_CALLERS; i++) {
        if (caller > 0 && rounds->trained[i] == caller) {
            return true;
        }
    }
    return false;
}

/* Whoever called the model last has trained it. */
static void begin_backward(struct ms_rounds *rounds)
{
    if (rounds->caller > 0 && !has_trained(rounds, rounds->caller)) {
        memmove(rounds->trained + 1, rounds->trained,
                (MS_ROUND_CALLERS - 1) * sizeof(*rounds->trained));
        rounds->trained[0] = rounds->caller;
    }
    if (!rounds->hides_tensors) {
        rounds->before_backward_site = rounds->site;
    }
    rounds->passed_calls = rounds->calls;
    rounds->phase++;
}

bool ms_rounds_before_pass(const struct ms_rounds *rounds)
{
    return rounds->phase % 2 == 0 && rounds->calls > rounds->passed_calls &&
           has_trained(rounds, rounds->caller);
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

        if (rounds->phase % 2 == 0) {
            begin_backward(rounds);
        }
        rounds->calling = false;
        /* An autograd worker that computes a part of the model again has Python frames of its
         * own. */
        if (is && is->python && is->thread != MS_THREAD_BACKWARD) {
            rounds->backward_site = rounds->before_backward_site = site;
        }
        return;
    }
    rounds->phase += rounds->phase % 2;
    /* If only a framework's segments are visible: a steady loop asks for none once it came round.
     * So a line that asks for one again does so in another call. */
    const bool another = doing == MS_DOING_FORWARD && rounds->hides_tensors &&
                         has_turned(rounds, doings->caller) && site == rounds->site;

    if (doing == MS_DOING_FORWARD && (!rounds->calling || another)) {
        rounds->calls++;
        rounds->caller = doings->caller;
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

void ms_rounds_sample(const struct ms_rounds *rounds, struct ms_sampled_site *site,
                      uint64_t time_ns)
{
    const uint64_t round = round_of(rounds->phase);

    if (site->rise_call == rounds->calls) {
        return;
    }
    if (site->rise_round != round) {
        site->rise = (struct ms_rise){0};
        site->rise_round = round;
    }
    ms_rise_add(&site->rise, rounds->calls, site->bytes, time_ns);
    site->rise_call = rounds->calls;
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
    const uint64_t first = rounds[0].round;
    const double apart = round_count > 1 ? (double)(rounds[round_count - 1].round - first) /
                                               (double)(round_count - 1)
                                         : 1;
    const double steps = by_call ? 0 : steps_a_pass(sampler->model);
    struct ms_growing_site *row = ms_buffer_extend(&sampler->kept, sizeof(*row));

    if (!row) {
        return;
    }
    *row = ms_sampler_growing(sampler, kept->site, degree,
                              steps > 0 ? MS_ROUND_STEP
                              : by_call ? MS_ROUND_CALL
                                        : MS_ROUND_PASS);
    row->rounds = round_count;
    row->since_ns = time_ns;
    for (size_t i = 0; i < count; i++) {
        const uint64_t round = by_call ? kept[i].call : kept[i].round;

        if (round >= first && kept[i].born_ns < row->since_ns) {
            row->since_ns = kept[i].born_ns;
        }
    }
    row->grown_bytes = sum_of(rounds, round_count);
    row->bytes_per_round =
        (double)row->grown_bytes / (double)round_count / apart / (steps > 0 ? steps : 1);
    row->every = apart * (steps > 0 ? steps : 1);
    row->since_step = ms_step_at(sampler->model, row->since_ns);
    row->bytes_per_hour = ms_bytes_per_hour((double)row->grown_bytes, time_ns - row->since_ns);
}

/* Without tensors: a framework's cache grows in the first passes, too, until it is large enough. */
static bool is_of_cache_by_pass(const struct ms_rounds *now, size_t rounds)
{
    return now->hides_tensors && rounds < FEWEST_PASSES;
}

/* Without tensors: one call may ask for several segments, and so may the next. Only what exceeds
 * those that shared a call shows that something is kept from call to call. */
static bool is_of_cache_by_call(const struct ms_rounds *now, size_t segments, size_t rounds)
{
    return now->hides_tensors && rounds <= segments - rounds;
}

/* Whether calls left this in an evaluation that is over. In no earlier round did that line call the
 * model, as it would in a step that calls its model several times; and training goes on. */
static bool is_of_first_evaluation(const struct ms_sampler *sampler, const struct kept *kept)
{
    const struct ms_rounds *rounds = sampler->rounds;
    const struct ms_doings *doings = ms_landmarks_of(sampler->model->landmarks, kept->site);

    /* Sorted by round: the first one is the earliest. */
    return !rounds->hides_tensors && rounds->phase / 2 >= FEWEST_TRAINED &&
           kept->round == rounds->phase / 2 && !sampler->sites[kept->site].freed &&
           doings->doing == MS_DOING_FORWARD && !has_trained(rounds, doings->caller) &&
           has_trained(rounds, rounds->caller);
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
        (used - first >= FEWEST_CALLS || is_of_first_evaluation(sampler, kept)) &&
        !is_of_cache_by_call(sampler->rounds, count, used - first)) {
        take_row(sampler, kept, count, rounds + first, used - first, true, MS_GROWTH_LIKELY,
                 time_ns);
    }
}

/* ---- made anew, and longer ---- */

static size_t count_of(const struct ms_sampler *sampler, const struct ms_live_set *live,
                       uint32_t site)
{
    size_t count = 0;

    for (size_t i = 0; i < ms_live_room(live); i++) {
        const struct ms_live *is = ms_live_at(live, i);

        count += is->key != 0 && is->device == sampler->device && is->site == site;
    }
    return count;
}

static bool is_rising(const struct ms_rounds *rounds, const struct ms_sampled_site *site)
{
    return !rounds->hides_tensors && site->bytes > 0 &&
           site->rise_round == round_of(rounds->phase) && site->rise.rises >= FEWEST_CALLS &&
           ms_rise_goes_on(&site->rise, rounds->calls);
}

/* Adds rows of sites whose bytes rise from call to call. `rounds` stays 0, as of a slope: the rule
 * that drops what only follows longer inputs judges slopes. */
static void find_rising(struct ms_sampler *sampler, const struct ms_live_set *live,
                        uint64_t time_ns, struct ms_buffer *rows)
{
    const struct ms_rounds *rounds = sampler->rounds;

    for (uint32_t id = 1; id < sampler->site_count; id = ms_sampler_next(sampler, id)) {
        struct ms_sampled_site *site = &sampler->sites[id];
        struct ms_growing_site *row = NULL;

        ms_rounds_sample(rounds, site, time_ns);
        if (is_rising(rounds, site) && !ms_growing_has(&sampler->kept, id)) {
            row = ms_buffer_extend(rows, sizeof(*row));
        }
        if (row) {
            const uint64_t grown_bytes = site->rise.bytes - site->rise.first_bytes;

            *row = ms_sampler_growing(sampler, id, MS_GROWTH_LIKELY, MS_ROUND_CALL);
            row->held = (double)count_of(sampler, live, id);
            row->since_step = rounds->calls - site->rise.rises;
            row->since_ns = site->rise.since;
            row->grown_bytes = grown_bytes < site->bytes ? grown_bytes : site->bytes;
        }
    }
}

static void take_rising(struct ms_sampler *sampler, struct ms_buffer *rows, uint64_t time_ns)
{
    struct ms_growing_site *all = (struct ms_growing_site *)rows->at;
    const size_t count =
        ms_growth_drop_longer(all, rows->bytes / sizeof(*all), sampler->rounds->calls);
    uint64_t grown_bytes = 0;

    for (size_t i = 0; i < count; i++) {
        grown_bytes += all[i].grown_bytes;
    }
    for (size_t i = 0; i < count && grown_bytes >= sampler->live_bytes / MADE_LONGER_PARTS; i++) {
        struct ms_growing_site *row = &all[i];
        const uint64_t over_ns = time_ns > row->since_ns ? time_ns - row->since_ns : 0;

        row->rounds = sampler->sites[row->site].rise.rises;
        row->held = 0;
        row->bytes_per_round = (double)row->grown_bytes / (double)row->rounds;
        row->bytes_per_hour = ms_bytes_per_hour((double)row->grown_bytes, over_ns);
        row->since_step = ms_step_at(sampler->model, row->since_ns);
        ms_buffer_append(&sampler->kept, (const char *)row, sizeof(*row));
    }
}

/* ---- more than a step needs ---- */

/* Whether it is made of the model's parameters: gradients, optimizer state, and their temporaries.
 * What a checkpointed part of the model computes again is not. */
static bool is_made_of_model(const struct ms_doings *doings)
{
    return ms_doing_is_optimizers((enum ms_doing)doings->doing) ||
           (doings->doing == MS_DOING_BACKWARD && !(doings->passed & MS_PASSED_MODULE));
}

static bool is_past_one_step(const struct ms_sampler *sampler)
{
    uint64_t made = 0, others = 0;

    for (uint32_t id = 1; id < sampler->site_count; id = ms_sampler_next(sampler, id)) {
        const uint64_t bytes = sampler->sites[id].bytes;
        const bool of_model = is_made_of_model(ms_landmarks_of(sampler->model->landmarks, id));

        made += of_model ? bytes : 0;
        others += of_model ? 0 : bytes;
    }
    return made / MOST_OF_A_STEP > others;
}

/* Without tensors: segments that a step has let go of serve the next one, so each is asked for
 * once. If there are more segments than one step needs, something keeps what lies in them. */
static void find_past_one_step(struct ms_sampler *sampler, const struct ms_live_set *live)
{
    if (!sampler->rounds->hides_tensors || !is_past_one_step(sampler)) {
        return;
    }
    for (uint32_t id = 1; id < sampler->site_count; id = ms_sampler_next(sampler, id)) {
        const struct ms_sampled_site *site = &sampler->sites[id];
        const size_t count = is_made_of_model(ms_landmarks_of(sampler->model->landmarks, id)) &&
                                     !ms_growing_has(&sampler->kept, id)
                                 ? count_of(sampler, live, id)
                                 : 0;
        struct ms_growing_site *row =
            count >= MS_GROWTH_FEWEST ? ms_buffer_extend(&sampler->kept, sizeof(*row)) : NULL;
        struct ms_site_sums sums = {0};

        if (row) {
            (void)ms_site_table_read(sampler->model->sites, (uint8_t)sampler->device, id, &sums);
            *row = ms_sampler_growing(sampler, id, MS_GROWTH_LIKELY, MS_ROUND_PASS);
            row->rounds = count;
            row->since_ns = sums.first_ns;
            row->grown_bytes = site->bytes;
            row->bytes_per_round = (double)site->bytes / (double)count;
        }
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
    struct ms_buffer all = {0}, rounds = {0}, rising = {0};

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
    find_past_one_step(sampler, live);
    find_rising(sampler, live, time_ns, &rising);
    if (rising.bytes > 0) {
        take_rising(sampler, &rising, time_ns);
    }
    ms_buffer_free(&rising);
    ms_buffer_free(&rounds);
    ms_buffer_free(&all);
}
