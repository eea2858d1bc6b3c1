/* SPDX-License-Identifier: Apache-2.0 */
/* Dry runs of one command with several batches. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_BATCHES_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_BATCHES_H

#include <stdbool.h>

#include "report/render/commands/dry_run.h"

struct ms_dry_plan {
    char name[128]; /* name of a variable, or the argument without its value; empty: none */
    bool is_variable;
    uint64_t values[MS_DRY_BATCHES];
    size_t count;
};

/* Parses "NAME=8,16,32": different whole numbers above 0. */
bool ms_dry_plan_take(const char *text, bool is_variable, struct ms_dry_plan *plan);

/* Runs the command with enough memory; the caller frees the answer. False, after an error message,
 * if it cannot be run. */
typedef bool ms_dry_measure(void *ctx, char *const *argv, const char *suffix,
                            struct ms_dry_answer *answer);

/* Runs it with each of the plan's batches. If the largest is wanted, runs at most four more. False
 * if a run could not be made. */
bool ms_dry_batches_run(const struct ms_dry_plan *plan, char *const *argv, ms_dry_measure *measure,
                        void *ctx, struct ms_dry_batches *batches);

#endif
