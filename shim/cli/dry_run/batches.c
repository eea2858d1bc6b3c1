/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a command with several batches, one after the other. */
#include "shim/cli/dry_run/batches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/fit/batch_foretell.h"
#include "shim/cli/arguments/values.h"
#include "shim/cli/dry_run/read.h"

#define MOST_BATCH   UINT32_MAX
#define MOST_RUNS    6 /* of a search */
#define NUMBER_BYTES 24

static bool has(const struct ms_dry_plan *plan, uint64_t value)
{
    for (size_t i = 0; i < plan->count; i++) {
        if (plan->values[i] == value) {
            return true;
        }
    }
    return false;
}

/* Variables that the simulated GPU and the loader read are this command's own. */
static bool can_be_set(const char *variable)
{
    static const char *const own[] = {"LD_", "SIMGPU_", "MEMSHIM_"};

    for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++) {
        if (strncmp(variable, own[i], strlen(own[i])) == 0) {
            return false;
        }
    }
    return (*variable < '0' || *variable > '9') &&
           variable[strspn(variable, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                     "0123456789_")] == '\0';
}

bool ms_dry_plan_take(const char *text, bool is_variable, struct ms_dry_plan *plan)
{
    const char *values = strrchr(text, '=');

    *plan = (struct ms_dry_plan){.is_variable = is_variable};
    if (!values || values == text || (size_t)(values - text) >= sizeof(plan->name)) {
        return false;
    }
    memcpy(plan->name, text, (size_t)(values - text));
    if (is_variable && !can_be_set(plan->name)) {
        return false;
    }
    while (*values == '=' || *values == ',') {
        const size_t length = strcspn(++values, ",");
        char number[NUMBER_BYTES];
        uint64_t value = 0;

        if (length >= sizeof(number) || plan->count == MS_DRY_BATCHES) {
            return false;
        }
        (void)snprintf(number, sizeof(number), "%.*s", (int)length, values);
        if (!ms_cli_take_count(number, MOST_BATCH, &value) || value == 0 || has(plan, value)) {
            return false;
        }
        plan->values[plan->count++] = value;
        values += length;
    }
    return true;
}

/* Takes the courses of all ranks from the answer. */
static void take_courses(struct ms_dry_answer *answer, struct ms_batch_run *run)
{
    for (size_t i = 0; i < ms_dry_rank_count(answer); i++) {
        struct ms_dry_rank *rank = ms_dry_rank_at(answer, i);

        if (rank->course && ms_batch_run_add(run, rank->rank, rank->course)) {
            rank->course = NULL;
        }
    }
}

/* A row for all ranks: the largest need; it fits only if all fit. */
static void take_row(const struct ms_dry_answer *answer, struct ms_dry_batch_row *row)
{
    row->fit = ms_dry_card_row(answer, 0).fit;
    row->known = row->fit.known && answer->end <= MS_DRY_ENDED;
    row->interrupted = answer->end == MS_DRY_INTERRUPTED;
    row->stopped = answer->end == MS_DRY_STOPPED;
    for (size_t i = 0; i < ms_dry_rank_count(answer); i++) {
        const struct ms_dry_rank *rank = ms_dry_rank_at(answer, i);

        row->steps = rank->steps;
        if (rank->largest.bytes > row->largest.bytes) {
            row->largest = rank->largest;
        }
        if (rank->peak_live_bytes > row->peak_live_bytes) {
            row->peak_live_bytes = rank->peak_live_bytes;
        }
        for (int ground = 0; ground < MS_GROUND_COUNT; ground++) {
            if (rank->needs.charged_bytes[ground] > row->needs_bytes[ground]) {
                row->needs_bytes[ground] = rank->needs.charged_bytes[ground];
            }
        }
    }
}

static bool measure_one(const struct ms_dry_plan *plan, char *const *argv, uint64_t batch,
                        ms_dry_measure *measure, void *ctx, struct ms_dry_batch_row *row,
                        struct ms_batch_run *run)
{
    char number[NUMBER_BYTES], word[sizeof(plan->name) + NUMBER_BYTES], suffix[NUMBER_BYTES + 8];
    struct ms_dry_answer answer = {0};
    size_t words = 0;
    char **whole;
    bool good;

    while (argv[words]) {
        words++;
    }
    whole = calloc(words + 2, sizeof(*whole));
    if (!whole) {
        return false;
    }
    memcpy(whole, argv, words * sizeof(*whole));
    (void)snprintf(number, sizeof(number), "%llu", (unsigned long long)batch);
    (void)snprintf(word, sizeof(word), "%s=%s", plan->name, number);
    (void)snprintf(suffix, sizeof(suffix), "-batch%s", number);
    if (plan->is_variable) {
        (void)setenv(plan->name, number, 1);
    } else {
        whole[words] = word;
    }
    *row = (struct ms_dry_batch_row){.batch = batch};
    good = measure(ctx, whole, suffix, &answer);
    if (good) {
        take_row(&answer, row);
        *run = (struct ms_batch_run){.batch = batch,
                                     .fits = row->fit.fits[MS_GROUND_TORCH],
                                     .live_bytes = row->peak_live_bytes,
                                     .largest_bytes = row->largest.bytes};
        take_courses(&answer, run);
        ms_dry_answer_free(&answer);
    }
    free((void *)whole);
    return good;
}

/* The next batch of the plan, or of the search; 0: none. The search ends if a run failed by
 * itself, and both do if somebody ended a run. */
static uint64_t next_batch(const struct ms_dry_plan *plan, const struct ms_dry_batches *batches,
                           const struct ms_batch_run *runs, size_t known)
{
    if (batches->count > 0 && batches->rows[batches->count - 1].interrupted) {
        return 0;
    }
    if (batches->count < plan->count) {
        return plan->values[batches->count];
    }
    if (!batches->wanted || batches->count >= MOST_RUNS || known < batches->count) {
        return 0;
    }
    return ms_batch_foretell(
        runs, known, &(struct ms_batch_limits){batches->card->total_bytes, plan->count, MOST_RUNS});
}

bool ms_dry_batches_run(const struct ms_dry_plan *plan, char *const *argv, ms_dry_measure *measure,
                        void *ctx, struct ms_dry_batches *batches)
{
    struct ms_batch_run runs[MS_DRY_BATCHES] = {0};
    struct ms_batch_bounds bounds;
    size_t known = 0;
    uint64_t next;
    bool good = true;

    while (good && (next = next_batch(plan, batches, runs, known)) > 0) {
        struct ms_dry_batch_row *row = &batches->rows[batches->count++];

        good = measure_one(plan, argv, next, measure, ctx, row, &runs[known]);
        if (row->known) {
            known++;
        } else {
            ms_batch_run_free(&runs[known]);
        }
    }
    batches->follows = !ms_batch_runs_contrast(runs, known, &batches->contrast);
    (void)ms_batch_runs_level(runs, known, &batches->level);
    if (batches->follows) {
        bounds = ms_batch_runs_bounds(runs, known);
        batches->found = bounds.fits;
        batches->too_big = bounds.too_big;
    }
    while (known > 0) {
        ms_batch_run_free(&runs[--known]);
    }
    return good;
}
