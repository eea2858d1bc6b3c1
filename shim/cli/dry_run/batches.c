/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a command with one batch after the other. */
#include "shim/cli/dry_run/batches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/model/batch_search.h"
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

bool ms_dry_plan_take(const char *text, bool is_variable, struct ms_dry_plan *plan)
{
    const char *values = strrchr(text, '=');

    *plan = (struct ms_dry_plan){.is_variable = is_variable};
    if (!values || values == text || (size_t)(values - text) >= sizeof(plan->name)) {
        return false;
    }
    memcpy(plan->name, text, (size_t)(values - text));
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

/* A row over all ranks: the largest need, and what fits where all do. */
static void take_row(const struct ms_dry_answer *answer, struct ms_dry_batch_row *row)
{
    row->fit = ms_dry_card_row(answer, 0).fit;
    row->known = row->fit.known && answer->end <= MS_DRY_ENDED;
    for (size_t i = 0; i < ms_dry_rank_count(answer); i++) {
        const struct ms_dry_rank *rank = ms_dry_rank_at(answer, i);

        row->steps = rank->steps;
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
                        ms_dry_measure *measure, void *ctx, struct ms_dry_batch_row *row)
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
        ms_dry_answer_free(&answer);
    }
    free((void *)whole);
    return good;
}

/* Those that are known, for the search. */
static size_t take_points(const struct ms_dry_batches *batches, struct ms_batch_point *points)
{
    size_t count = 0;

    for (size_t i = 0; i < batches->count; i++) {
        const struct ms_dry_batch_row *row = &batches->rows[i];

        if (row->known) {
            points[count++] = (struct ms_batch_point){row->batch, row->needs_bytes[MS_GROUND_TORCH],
                                                      row->fit.fits[MS_GROUND_TORCH]};
        }
    }
    return count;
}

bool ms_dry_batches_run(const struct ms_dry_plan *plan, char *const *argv, ms_dry_measure *measure,
                        void *ctx, struct ms_dry_batches *batches)
{
    struct ms_batch_point points[MS_DRY_BATCHES];
    struct ms_batch_bounds bounds;
    bool good = true;

    for (size_t i = 0; good && i < plan->count; i++) {
        good = measure_one(plan, argv, plan->values[i], measure, ctx,
                           &batches->rows[batches->count++]);
    }
    while (good && batches->wanted && batches->count < MOST_RUNS) {
        const size_t count = take_points(batches, points);
        const uint64_t next = ms_batch_next(points, count, batches->card->total_bytes);

        if (next == 0 || count < batches->count) {
            break;
        }
        good = measure_one(plan, argv, next, measure, ctx, &batches->rows[batches->count++]);
    }
    bounds = ms_batch_bounds(points, take_points(batches, points));
    batches->found = bounds.fits;
    batches->too_big = bounds.too_big;
    return good;
}
