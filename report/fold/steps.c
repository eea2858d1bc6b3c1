/* SPDX-License-Identifier: Apache-2.0 */
/* Finds training steps and backward passes by the call sites that recur. */
#include "report/fold/steps.h"

#include <string.h>

#include "allocator/base/containers/pages.h"
#include "report/trace/words.h"

/* Lines that call optimizers, and as many that call models: bits of a word */
#define MOST_LINES   64u
#define MOST_TIMES   4096u /* of steps to keep */
#define LEAKED_PARTS 8u    /* one part in so many of a call's memory, if more than that stays */

/* With fewer steps, a model's first call may still belong to training. */
#define FEWEST_STEPS 2u

/* A line of code that calls an optimizer. */
struct optimizer {
    uint32_t caller; /* Python node */
    uint32_t site;   /* the newest of its sites */
    bool torch;      /* it is one of torch.optim's */
    uint64_t gaps, last_gap, longest;
    uint64_t last_ns;        /* of its newest allocation, where a step ends */
    struct ms_begins begins; /* of steps */
};

/* A line of code that calls a model. */
struct model_call {
    uint32_t caller;
    uint64_t batches, gaps, last_gap;
};

/* Between two passes. */
struct pass_gap {
    uint64_t begin_ns;
    uint64_t calls; /* a bit for each line that called a model in it */
};

struct ms_steps {
    const ms_landmarks_t *landmarks;
    uint32_t phase;
    uint64_t first_call_ns;
    uint32_t calling; /* the call that asked for memory last, + 1 */
    uint32_t optimizer_count, call_count;
    struct optimizer optimizers[MOST_LINES];
    struct model_call calls[MOST_LINES];
    struct ms_buffer gaps; /* struct pass_gap */

    /* Not stored: the numbers of the events whose times are above. */
    struct {
        uint64_t first_call, last[MOST_LINES];
        struct ms_buffer begins[MOST_LINES], gaps; /* uint64_t */
    } events;
};
#define STORED_BYTES offsetof(struct ms_steps, events)

ms_steps_t *ms_steps_new(const ms_landmarks_t *landmarks)
{
    struct ms_steps *steps = ms_pages_map(sizeof(*steps));

    if (!steps) {
        return NULL;
    }
    steps->landmarks = landmarks;
    steps->first_call_ns = UINT64_MAX;
    if (!ms_buffer_extend(&steps->gaps, sizeof(struct pass_gap)) ||
        !ms_buffer_extend(&steps->events.gaps, sizeof(uint64_t))) {
        ms_steps_delete(steps);
        return NULL;
    }
    return steps;
}

void ms_steps_delete(ms_steps_t *steps)
{
    if (steps) {
        for (uint32_t i = 0; i < steps->optimizer_count; i++) {
            ms_buffer_free(&steps->optimizers[i].begins.at);
            ms_buffer_free(&steps->events.begins[i]);
        }
        ms_buffer_free(&steps->gaps);
        ms_buffer_free(&steps->events.gaps);
        ms_pages_unmap(steps, sizeof(*steps));
    }
}

void ms_steps_find(ms_steps_t *steps, const ms_landmarks_t *landmarks)
{
    steps->landmarks = landmarks;
}

/* ---- storing ---- */

/* A copy without members that are private to this process. */
static struct ms_steps plain_of(const ms_steps_t *steps)
{
    struct ms_steps plain = {0};

    memcpy(&plain, steps, STORED_BYTES);
    plain.landmarks = NULL;
    plain.gaps = (struct ms_buffer){0};
    for (uint32_t i = 0; i < MOST_LINES; i++) {
        plain.optimizers[i].begins.at = (struct ms_buffer){0};
    }
    return plain;
}

void ms_steps_store(const ms_steps_t *steps, struct ms_buffer *out)
{
    const struct ms_steps plain = plain_of(steps);

    ms_words_put_bytes(out, &plain, STORED_BYTES);
    ms_words_put_buffer(out, &steps->gaps, sizeof(struct pass_gap));
    for (uint32_t i = 0; i < steps->optimizer_count; i++) {
        ms_words_put_buffer(out, &steps->optimizers[i].begins.at, sizeof(uint64_t));
    }
}

bool ms_steps_load(ms_steps_t *steps, struct ms_words_in *in)
{
    const ms_landmarks_t *landmarks = steps->landmarks;
    struct ms_steps read;

    ms_words_get_bytes(in, &read, STORED_BYTES);
    if (in->failed || read.optimizer_count > MOST_LINES || read.call_count > MOST_LINES ||
        read.calling > read.call_count) {
        return false;
    }
    ms_buffer_free(&steps->gaps);
    ms_buffer_free(&steps->events.gaps);
    *steps = plain_of(&read);
    steps->landmarks = landmarks;
    ms_words_get_buffer(in, &steps->gaps, sizeof(struct pass_gap), MS_MOST_PASSES + 1);
    for (uint32_t i = 0; i < steps->optimizer_count; i++) {
        struct ms_buffer *begins = &steps->optimizers[i].begins.at;

        ms_words_get_buffer(in, begins, sizeof(uint64_t), MOST_TIMES);
        ms_words_get_unstored(in, &steps->events.begins[i], begins->bytes);
    }

    const size_t gaps = steps->gaps.bytes / sizeof(struct pass_gap);

    ms_words_get_unstored(in, &steps->events.gaps, gaps * sizeof(uint64_t));

    const uint64_t wanted = (uint64_t)steps->phase / 2 + 1;

    return !in->failed && gaps == (wanted <= MS_MOST_PASSES ? wanted : MS_MOST_PASSES + 1);
}

/* ---- as it happens ---- */

static void thin(struct ms_buffer *buffer, size_t kept)
{
    uint64_t *all = (uint64_t *)buffer->at;

    for (size_t i = 0; i < kept; i++) {
        all[i] = all[2 * i];
    }
    buffer->bytes = kept * sizeof(*all);
}

void ms_begins_note(struct ms_begins *begins, struct ms_buffer *events, size_t most,
                    uint64_t time_ns, uint64_t number)
{
    begins->every = begins->every ? begins->every : 1;
    if (begins->at.bytes == most * sizeof(time_ns)) {
        thin(&begins->at, most / 2);
        thin(events, most / 2);
        begins->every *= 2;
    }
    if (begins->count % begins->every == 0) {
        uint64_t *event = ms_buffer_extend(events, sizeof(*event));
        uint64_t *time = event ? ms_buffer_extend(&begins->at, sizeof(*time)) : NULL;

        if (time) {
            *event = number;
            *time = time_ns;
        }
    }
    begins->count++;
}

static struct pass_gap *this_gap(const struct ms_steps *steps)
{
    return (struct pass_gap *)steps->gaps.at + steps->gaps.bytes / sizeof(struct pass_gap) - 1;
}

static uint64_t *this_gap_event(const struct ms_steps *steps)
{
    return (uint64_t *)steps->events.gaps.at + steps->events.gaps.bytes / sizeof(uint64_t) - 1;
}

static uint64_t gap_number(const struct ms_steps *steps)
{
    return steps->phase / 2;
}

static struct optimizer *find_optimizer(struct ms_steps *steps, uint32_t caller)
{
    for (uint32_t i = 0; i < steps->optimizer_count; i++) {
        if (steps->optimizers[i].caller == caller) {
            return &steps->optimizers[i];
        }
    }
    if (steps->optimizer_count == MOST_LINES) {
        return NULL;
    }

    struct optimizer *optimizer = &steps->optimizers[steps->optimizer_count++];

    optimizer->caller = caller;
    return optimizer;
}

static void note_optimizer(struct ms_steps *steps, uint32_t site, const struct ms_doings *is,
                           uint64_t time_ns, uint64_t number)
{
    const uint64_t gap = gap_number(steps);
    /* Before the first pass an optimizer has nothing to update: it makes its state. */
    struct optimizer *optimizer = gap > 0 ? find_optimizer(steps, is->caller) : NULL;

    if (!optimizer) {
        return;
    }
    optimizer->torch |= is->doing == MS_DOING_OPTIMIZER;
    optimizer->site = site;

    const size_t index = (size_t)(optimizer - steps->optimizers);
    const bool called = steps->first_call_ns != UINT64_MAX;
    uint64_t begin_ns = called ? steps->first_call_ns : time_ns;
    uint64_t begin = called ? steps->events.first_call : number;

    if (optimizer->gaps > 0) {
        begin_ns = optimizer->last_ns;
        begin = steps->events.last[index];
    }
    optimizer->last_ns = time_ns;
    steps->events.last[index] = number;
    if (optimizer->gaps > 0 && optimizer->last_gap == gap) {
        return;
    }

    const uint64_t passes = gap - optimizer->last_gap;

    optimizer->longest = passes > optimizer->longest ? passes : optimizer->longest;
    optimizer->last_gap = gap;
    optimizer->gaps++;
    ms_begins_note(&optimizer->begins, &steps->events.begins[index], MOST_TIMES, begin_ns, begin);
}

static uint32_t find_call(struct ms_steps *steps, uint32_t caller)
{
    for (uint32_t i = 0; i < steps->call_count; i++) {
        if (steps->calls[i].caller == caller) {
            return i;
        }
    }
    if (steps->call_count < MOST_LINES) {
        steps->calls[steps->call_count++].caller = caller;
    }
    return steps->call_count - 1;
}

static void note_call(struct ms_steps *steps, const struct ms_doings *is, uint64_t time_ns,
                      uint64_t number)
{
    if (steps->calling > 0 && steps->calls[steps->calling - 1].caller == is->caller) {
        return;
    }

    if (steps->first_call_ns == UINT64_MAX) {
        steps->first_call_ns = time_ns;
        steps->events.first_call = number;
        this_gap(steps)->begin_ns = time_ns;
        *this_gap_event(steps) = number;
    }

    const uint32_t index = find_call(steps, is->caller);
    struct model_call *call = &steps->calls[index];
    const uint64_t gap = gap_number(steps);

    steps->calling = index + 1;
    this_gap(steps)->calls |= UINT64_C(1) << index;
    call->batches++;
    call->gaps += call->gaps == 0 || call->last_gap != gap;
    call->last_gap = gap;
}

/* Passes beyond the limit share one gap. False: there is no memory. */
static bool begin_gap(ms_steps_t *steps, uint64_t time_ns, uint64_t number)
{
    if (steps->gaps.bytes / sizeof(struct pass_gap) <= MS_MOST_PASSES) {
        uint64_t *event = ms_buffer_extend(&steps->events.gaps, sizeof(*event));
        struct pass_gap *gap = event ? ms_buffer_extend(&steps->gaps, sizeof(*gap)) : NULL;

        if (!gap) {
            return false;
        }
        *gap = (struct pass_gap){.begin_ns = time_ns};
        *event = number;
    }
    steps->phase++;
    return true;
}

uint32_t ms_steps_allocation(ms_steps_t *steps, uint32_t site, uint64_t time_ns, uint64_t number)
{
    const struct ms_doings *is = ms_landmarks_of(steps->landmarks, site);

    if (is->doing <= MS_DOING_ASIDE) {
        return steps->phase;
    }
    if (is->doing == MS_DOING_BACKWARD) {
        steps->phase += steps->phase % 2 == 0;
        steps->calling = 0;
        return steps->phase;
    }
    if (steps->phase % 2 == 1 && !begin_gap(steps, time_ns, number)) {
        return steps->phase;
    }
    if (is->caller == 0) {
        steps->calling = 0;
        return steps->phase;
    }
    if (is->doing == MS_DOING_FORWARD) {
        note_call(steps, is, time_ns, number);
        return steps->phase;
    }
    steps->calling = 0;
    note_optimizer(steps, site, is, time_ns, number);
    return steps->phase;
}

/* ---- afterwards ---- */

/* Bytes of that lifetime, over all sites of a line and all devices. */
static uint64_t lifetime_bytes(const ms_steps_t *steps, const ms_site_table_t *table,
                               uint32_t caller, bool calls_model, enum ms_lifetime lifetime)
{
    uint64_t bytes = 0;

    for (int device = 0; device < MS_DEVICE_COUNT; device++) {
        const uint32_t end = ms_site_table_end(table, (uint8_t)device);

        for (uint32_t site = 1; site < end;
             site = ms_site_table_after(table, (uint8_t)device, site)) {
            const struct ms_doings *is = ms_landmarks_of(steps->landmarks, site);
            struct ms_site_lifetimes lifetimes;

            if (is->caller == caller && is->doing != MS_DOING_BACKWARD &&
                (is->doing == MS_DOING_FORWARD) == calls_model &&
                ms_site_table_lifetimes(table, (uint8_t)device, site, &lifetimes)) {
                bytes += lifetimes.bytes[lifetime];
            }
        }
    }
    return bytes;
}

/* Whether it recurred and did not cease. */
static bool is_steady(const struct optimizer *optimizer, uint64_t passes)
{
    return passes - optimizer->last_gap <= optimizer->longest;
}

/* The line that called an optimizer most often; another function named `step` only if none of
 * torch.optim is seen. */
static const struct optimizer *best_optimizer(const ms_steps_t *steps, uint64_t passes)
{
    const struct optimizer *best = NULL;

    for (uint32_t i = 0; i < steps->optimizer_count; i++) {
        const struct optimizer *each = &steps->optimizers[i];

        if (is_steady(each, passes) && (!best || each->torch > best->torch ||
                                        (each->torch == best->torch && each->gaps > best->gaps))) {
            best = each;
        }
    }
    return best;
}

/* Passes that made new gradients, because the old ones had been dropped. */
struct turnover {
    uint64_t count, last, longest; /* the number of the last pass; the most passes from one to the
                                      next */
    struct ms_begins begins;
    struct ms_buffer begin_events;
};

static struct turnover find_turnover(const ms_steps_t *steps, const ms_site_table_t *table,
                                     uint64_t passes)
{
    const struct pass_gap *gaps = (const struct pass_gap *)steps->gaps.at;
    const uint64_t *events = (const uint64_t *)steps->events.gaps.at;
    struct turnover found = {0};
    uint64_t most = 0;

    for (uint64_t pass = 0; pass < passes; pass++) {
        const uint64_t bytes = ms_site_table_outlived(table, pass);

        most = bytes > most ? bytes : most;
    }
    for (uint64_t pass = 0; pass < passes && most > 0; pass++) {
        if (ms_site_table_outlived(table, pass) < most / 2) {
            continue;
        }
        ms_begins_note(&found.begins, &found.begin_events, MOST_TIMES, gaps[pass].begin_ns,
                       events[pass]);
        if (found.count > 0) {
            found.longest = pass - found.last > found.longest ? pass - found.last : found.longest;
        }
        found.last = pass;
        found.count++;
    }
    return found;
}

/* A warm-up's, which ceased, does not count, nor do other functions named `step` beside
 * torch.optim.
 */
static uint64_t rarest_steps(const ms_steps_t *steps, const struct optimizer *best, uint64_t passes)
{
    uint64_t rarest = best->gaps;

    for (uint32_t i = 0; i < steps->optimizer_count; i++) {
        const struct optimizer *each = &steps->optimizers[i];

        if (each->torch == best->torch && is_steady(each, passes) && each->gaps < rarest) {
            rarest = each->gaps;
        }
    }
    return rarest;
}

static void take_optimizer(const ms_steps_t *steps, const struct optimizer *optimizer,
                           struct ms_recurrence *found)
{
    const struct ms_buffer *events = &steps->events.begins[optimizer - steps->optimizers];

    found->known = true;
    found->count = optimizer->gaps;
    found->rarest = rarest_steps(steps, optimizer, found->passes);
    found->site = optimizer->site;
    found->ended_ns = optimizer->last_ns;
    found->every = optimizer->begins.every;
    ms_buffer_append(&found->begins, optimizer->begins.at.at, optimizer->begins.at.bytes);
    ms_buffer_append(&found->begin_events, events->at, events->bytes);
}

/* Moves its times to `found`. */
static void take_turnover(struct turnover *turnover, struct ms_recurrence *found)
{
    found->known = true;
    found->count = turnover->count;
    found->every = turnover->begins.every;
    found->begins = turnover->begins.at;
    found->begin_events = turnover->begin_events;
    turnover->begins.at = turnover->begin_events = (struct ms_buffer){0};
}

static void find_steps(const ms_steps_t *steps, const ms_site_table_t *table,
                       struct ms_recurrence *found)
{
    const uint64_t passes = found->passes;
    const struct optimizer *optimizer = best_optimizer(steps, passes);
    struct turnover turnover = find_turnover(steps, table, passes);
    /* A pass in which the run ended may not have come to its gradients. */
    const uint64_t whole = passes - steps->phase % 2;
    const bool drops = turnover.count == passes ||
                       (turnover.count > 1 && whole <= turnover.last + turnover.longest);
    /* An optimizer that allocated nothing but its state may have run unseen ever since. */
    const bool silent = optimizer && lifetime_bytes(steps, table, optimizer->caller, false,
                                                    MS_LIFETIME_MOMENT) == 0;

    found->optimizer_site = optimizer ? optimizer->site : 0;
    if (optimizer && !(silent && drops && turnover.count > optimizer->gaps)) {
        take_optimizer(steps, optimizer, found);
    } else if (drops) {
        take_turnover(&turnover, found);
        /* In the gap after the last pass, whose gradients may not be dropped yet. */
        found->ended_ns = steps->phase % 2 == 0 ? this_gap(steps)->begin_ns : UINT64_MAX;
    } else {
        found->why = "neither an optimizer nor dropped gradients were seen to recur";
    }
    ms_buffer_free(&turnover.begins.at);
    ms_buffer_free(&turnover.begin_events);
}

static int bits(uint64_t word)
{
    return __builtin_popcountll(word);
}

/* Whether a good part of the calls' memory is never freed: a program keeps it by mistake. */
static bool leaks(const struct ms_steps *steps, const ms_site_table_t *table, uint32_t caller)
{
    uint64_t bytes = 0;

    for (int lifetime = 0; lifetime < MS_LIFETIME_COUNT; lifetime++) {
        bytes += lifetime_bytes(steps, table, caller, true, (enum ms_lifetime)lifetime);
    }
    return lifetime_bytes(steps, table, caller, true, MS_LIFETIME_KEPT) > bytes / LEAKED_PARTS;
}

/* ---- evaluations ---- */

/* Calls of that line that reached their end. */
static uint64_t completed(const ms_steps_t *steps, const struct model_call *call,
                          const struct ms_steps_failures *failures)
{
    uint64_t failed = 0;

    for (size_t i = 0; i < failures->count; i++) {
        const struct ms_doings *is = ms_landmarks_of(steps->landmarks, failures->at[i].site);

        failed += is->doing == MS_DOING_FORWARD && is->caller == call->caller;
    }
    return call->batches > failed ? call->batches - failed : 0;
}

/* Whether a line's calls are an evaluation's: nothing of them is kept for a backward. But some
 * calls of that sort belong to the step (a teacher, a generator): they run in every step, and their
 * results outlive a pass, or are never freed. Memory of a capture has no known lifetime. */
static bool evaluates(const ms_steps_t *steps, const ms_site_table_t *table,
                      const struct ms_recurrence *found, uint32_t caller, uint64_t gaps)
{
    const uint64_t rounds = found->known ? found->count : found->passes;
    const bool every_step = 10 * gaps >= 9 * rounds;

    return lifetime_bytes(steps, table, caller, true, MS_LIFETIME_BACKWARD) == 0 &&
           lifetime_bytes(steps, table, caller, true, MS_LIFETIME_CAPTURED) == 0 &&
           !(every_step && (lifetime_bytes(steps, table, caller, true, MS_LIFETIME_CROSSED) > 0 ||
                            leaks(steps, table, caller)));
}

static uint64_t evaluating(const ms_steps_t *steps, const ms_site_table_t *table,
                           const struct ms_steps_failures *failures,
                           const struct ms_recurrence *found)
{
    uint64_t calls = 0;

    for (uint32_t i = 0; i < steps->call_count; i++) {
        if (completed(steps, &steps->calls[i], failures) > 0 &&
            evaluates(steps, table, found, steps->calls[i].caller, steps->calls[i].gaps)) {
            calls |= UINT64_C(1) << i;
        }
    }
    return calls;
}

static void find_evaluations(const ms_steps_t *steps, const ms_site_table_t *table,
                             const struct ms_steps_failures *failures, struct ms_recurrence *found)
{
    const uint64_t calls = evaluating(steps, table, failures, found);
    const struct pass_gap *gaps = (const struct pass_gap *)steps->gaps.at;
    const size_t count = steps->gaps.bytes / sizeof(*gaps);

    found->evaluations_known = bits(calls) < (int)steps->call_count;
    for (size_t i = 0; i < count; i++) {
        const bool evaluates = (gaps[i].calls & calls) != 0;

        found->evaluations += evaluates;
        found->evaluations_ended += evaluates && i > 0 && i + 1 < count;
    }
    for (uint32_t i = 0; i < steps->call_count; i++) {
        found->evaluation_batches +=
            calls >> i & 1 ? completed(steps, &steps->calls[i], failures) : 0;
    }
}

/* Whether both are the same line of the same function, however reached. */
static bool same_place(const struct ms_python_definition *a, const struct ms_python_definition *b)
{
    return a && b && a->code == b->code && a->instruction == b->instruction;
}

bool ms_steps_trains(const ms_steps_t *steps, const ms_site_table_t *table,
                     const ms_definitions_t *definitions, uint32_t site)
{
    const struct ms_doings *is = ms_landmarks_of(steps->landmarks, site);
    const struct ms_python_definition *place = ms_definitions_python(definitions, is->caller);

    if (is->doing != MS_DOING_FORWARD || is->caller == 0) {
        return true;
    }
    for (uint32_t i = 0; i < steps->call_count; i++) {
        const uint32_t other = steps->calls[i].caller;

        if (same_place(place, ms_definitions_python(definitions, other)) &&
            lifetime_bytes(steps, table, other, true, MS_LIFETIME_BACKWARD) > 0) {
            return true;
        }
    }
    return false;
}

/* When the gap at that time began. */
static uint64_t gap_began_ns(const ms_steps_t *steps, uint64_t time_ns)
{
    const struct pass_gap *gaps = (const struct pass_gap *)steps->gaps.at;
    size_t after = steps->gaps.bytes / sizeof(*gaps);

    while (after > 1 && gaps[after - 1].begin_ns > time_ns) {
        after--;
    }
    return gaps[after - 1].begin_ns;
}

/* Whether another request failed before, with no backward pass between them. */
static bool tries_again(const ms_steps_t *steps, const struct ms_steps_failures *failures,
                        size_t failure)
{
    return failure > 0 &&
           failures->at[failure - 1].time_ns >= gap_began_ns(steps, failures->at[failure].time_ns);
}

bool ms_steps_evaluates(const ms_steps_t *steps, const ms_site_table_t *table,
                        const ms_definitions_t *definitions, const struct ms_recurrence *found,
                        const struct ms_steps_failures *failures, size_t failure)
{
    const uint32_t site = failures->at[failure].site;
    const uint32_t caller = ms_landmarks_of(steps->landmarks, site)->caller;
    uint64_t gaps = 0, done = 0;

    if (!found->known || found->count < FEWEST_STEPS ||
        ms_steps_trains(steps, table, definitions, site)) {
        return false;
    }
    for (uint32_t i = 0; i < steps->call_count; i++) {
        gaps += steps->calls[i].caller == caller ? steps->calls[i].gaps : 0;
        done += steps->calls[i].caller == caller ? completed(steps, &steps->calls[i], failures) : 0;
    }
    return !(done == 0 && tries_again(steps, failures, failure)) &&
           evaluates(steps, table, found, caller, gaps);
}

void ms_steps_judge(const ms_steps_t *steps, const ms_site_table_t *table,
                    const struct ms_steps_failures *failures, const char *missing,
                    struct ms_recurrence *found)
{
    *found = (struct ms_recurrence){.every = 1, .whole = !missing, .ended_ns = UINT64_MAX};
    found->passes = (steps->phase + 1) / 2;
    if (missing) {
        found->why = missing;
    } else if (found->passes == 0) {
        found->why = "no backward pass was seen";
    } else if (found->passes > MS_MOST_PASSES) {
        found->why = "there were more backward passes than can be told apart";
    } else {
        find_steps(steps, table, found);
        find_evaluations(steps, table, failures, found);
    }
}
