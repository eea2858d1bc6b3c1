/* SPDX-License-Identifier: Apache-2.0 */
/* Classifies freed memory at the next allocation: only that shows whether a backward pass went
 * on. */
#include "report/fold/site_past.h"

#include "report/fold/site_table.h"

/* by_pass: one of the table's sums. */
static void add_to_pass(struct ms_buffer *by_pass, const struct ms_past *past)
{
    const size_t end = ((size_t)past->born_phase / 2 + 1) * sizeof(uint64_t);

    if (past->born_phase / 2 >= MS_MOST_PASSES) {
        return;
    }
    if (end <= by_pass->bytes || ms_buffer_extend(by_pass, end - by_pass->bytes)) {
        ((uint64_t *)by_pass->at)[past->born_phase / 2] += past->bytes;
    }
}

void ms_site_record(struct ms_site_table *table, uint32_t allocation, int recorded)
{
    if (allocation - table->recorded_first < table->recorded.bytes) {
        table->recorded.at[allocation - table->recorded_first] = (char)recorded;
    }
}

static void settle_past(struct ms_site_table *table, const struct ms_past *past,
                        enum ms_lifetime recorded, struct ms_buffer *outlived)
{
    const struct device *device = &table->devices[past->device];
    const enum ms_lifetime lifetime = past->captured ? MS_LIFETIME_CAPTURED : recorded;

    ms_site_record(table, past->allocation, (int)lifetime);
    ms_lifetimes_add(past->lifetimes, lifetime, past->bytes);
    ms_lifetimes_add_at_peak(past->lifetimes, lifetime, past, device->peak);
    ms_lifetimes_add_at_peak(past->lifetimes, lifetime, past, device->candidate);
    if (lifetime == MS_LIFETIME_OUTLIVED) {
        add_to_pass(outlived, past);
    }
}

/* Whether the memory freed after a pass's last allocation has gradients. Otherwise it is the pass's
 * last few results. It has, if a program drops all gradients before it asks for anything else: they
 * are about as many as other passes left behind, and more than this one did. */
static bool tail_has_gradients(struct ms_site_table *table)
{
    const struct ms_past *past = (const struct ms_past *)table->past.at;
    uint64_t tail = 0;

    for (size_t i = 0; i < table->past.bytes / sizeof(*past); i++) {
        tail += past[i].born_phase == table->past_phase;
    }

    const bool gradients = tail > 2 * table->phase_blocks && 2 * tail >= table->most_left;
    const uint64_t left = table->phase_blocks + (gradients ? tail : 0);

    table->most_left = left > table->most_left ? left : table->most_left;
    return gradients;
}

/* How many of the last frees came before the end of the pass. The last results go at once;
 * gradients go only after the optimizer, so the longest pause comes before them. */
static size_t end_of_pass(struct ms_site_table *table, size_t count)
{
    const struct ms_past *past = (const struct ms_past *)table->past.at;
    uint64_t before_ns = table->allocation_ns, longest_ns = 0;
    size_t end = count;

    if (!tail_has_gradients(table)) {
        return count;
    }
    for (size_t i = 0; i < count; i++) {
        if (past[i].born_phase == table->past_phase) {
            if (past[i].died_ns - before_ns >= longest_ns) {
                longest_ns = past[i].died_ns - before_ns;
                end = i;
            }
            before_ns = past[i].died_ns;
        }
    }
    return end;
}

/* How many of the last frees came before the process began to end. The end begins when it ran out
 * of memory, or when memory from the start goes, or after the last gradients were dropped. */
static size_t end_of_life(const struct ms_site_table *table, size_t count, uint64_t ran_out_ns)
{
    const struct ms_past *past = (const struct ms_past *)table->past.at;
    size_t from = 0;

    for (size_t i = 0; i < count; i++) {
        if (past[i].born_phase == 0 || past[i].died_ns >= ran_out_ns) {
            return i;
        }
        from = past[i].born_phase % 2 == 1 ? i + 1 : from;
    }
    return from ? from : count;
}

static bool is_optimizers(const struct ms_run_end *end, uint32_t site)
{
    return ms_landmarks_is_optimizers(end->landmarks, site);
}

/* How many of the last frees came before an optimizer's step returned, if it was the last: its
 * state may go before anything from the start does. What the step asked for last is most likely a
 * result that it drops as it returns, if more of its memory goes after that; otherwise it is the
 * state. */
static size_t end_of_step(const struct ms_site_table *table, size_t count,
                          const struct ms_run_end *end)
{
    const struct ms_past *past = (const struct ms_past *)table->past.at;
    size_t first = count, after = 0;
    bool others = false;

    for (size_t i = 0; i < count && is_optimizers(end, table->allocation_site); i++) {
        if (past[i].site == table->allocation_site) {
            first = first < i ? first : i;
            after = i + 1;
            others = false;
        } else {
            others = others || is_optimizers(end, past[i].site);
        }
    }
    return others || first == count ? after : first;
}

/* Whether memory that an optimizer asked for lived through the run's last pass, after which nothing
 * was asked for: the last step may ask for nothing, and state may go before anything from the start
 * does. */
static bool outlived_pass(const struct ms_past *past, uint32_t pass, const struct ms_run_end *end)
{
    return past->born_phase % 2 == 0 && past->born_phase < pass && is_optimizers(end, past->site);
}

/* Whether memory that the last step of an optimizer asked for outlived it. */
static bool outlived_step(const struct ms_past *past, bool after_step, const struct ms_run_end *end)
{
    return is_optimizers(end, past->site) &&
           (after_step || past->lifetimes->bytes[MS_LIFETIME_OPEN] > 0);
}

void ms_site_past_judge(struct ms_site_table *table, const struct ms_run_end *end)
{
    const struct ms_past *past = (const struct ms_past *)table->past.at;
    const size_t count = table->past.bytes / sizeof(*past);
    const bool goes_on = table->phase == table->past_phase && !end;
    const bool pass = table->past_phase % 2 == 1;
    const size_t pass_end = goes_on || !pass ? count : end_of_pass(table, count);
    const size_t life_end = end ? end_of_life(table, count, end->ran_out_ns) : count;
    const size_t step_end = end && !pass ? end_of_step(table, life_end, end) : count;

    /* Backwards: other memory of the same site may have gone later. */
    for (size_t i = count; i-- > 0;) {
        const bool own = past[i].born_phase == table->past_phase;
        const bool in_pass = pass && (own ? i < pass_end : goes_on);
        const bool at_end = end && (i >= life_end ||
                                    (own && !pass && outlived_step(&past[i], i >= step_end, end)) ||
                                    (pass && outlived_pass(&past[i], table->past_phase, end)));

        settle_past(table, &past[i],
                    at_end ? ms_lifetime_at_end(past[i].born_phase, table->past_phase, in_pass,
                                                end->in_pass)
                           : ms_lifetime_of(past[i].born_phase, table->past_phase, in_pass),
                    &table->outlived);
    }
    table->past.bytes = 0;
    table->phase_blocks = goes_on ? table->phase_blocks : 0;
    table->past_phase = table->phase;
}

static struct ms_past past_of(struct site *site, const struct ms_live *live, uint64_t time_ns)
{
    return (struct ms_past){.lifetimes = &site->lifetimes,
                            .bytes = live->bytes,
                            .born_phase = live->born_phase,
                            .born_epoch = live->born_epoch,
                            .allocation = live->allocation,
                            .site = live->site,
                            .device = live->device,
                            .captured = live->captured,
                            .died_ns = time_ns};
}

void ms_site_past_note(struct ms_site_table *table, struct site *site, const struct ms_live *live,
                       uint64_t time_ns)
{
    const struct ms_past past = past_of(site, live, time_ns);

    ms_buffer_append(&table->past, (const char *)&past, sizeof(past));
    if (live->born_phase == table->phase) {
        ms_sum_take(&table->phase_blocks, 1);
    }
}

void ms_site_past_live(struct ms_site_table *table, struct site *site, const struct ms_live *live,
                       const struct ms_run_end *end)
{
    const struct ms_past past = past_of(site, live, 0);

    settle_past(table, &past,
                ms_lifetime_at_end(live->born_phase, table->past_phase, false, end->in_pass),
                &table->remained);
}
