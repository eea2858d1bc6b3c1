/* SPDX-License-Identifier: Apache-2.0 */
/* Dry runs of one command with several batches. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_BATCHES_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_BATCHES_H

#include <stdbool.h>

#include "report/render/commands/dry_run.h"

struct ms_dry_plan {
    char name[128]; /* of a variable, or the argument without its value; empty: none */
    bool is_variable;
    uint64_t values[MS_DRY_BATCHES];
    size_t count;
};

/* "NAME=8,16,32": different whole numbers above 0. */
bool ms_dry_plan_take(const char *text, bool is_variable, struct ms_dry_plan *plan);

/* Runs the command with memory enough; its answer is the caller's to free. False where it cannot be
 * run, which has been said. */
typedef bool ms_dry_measure(void *ctx, char *const *argv, const char *suffix,
                            struct ms_dry_answer *answer);

/* Runs it with each of the plan's batches, and, where the largest is wanted, with at most four more
 * of them. False where a run could not be. */
bool ms_dry_batches_run(const struct ms_dry_plan *plan, char *const *argv, ms_dry_measure *measure,
                        void *ctx, struct ms_dry_batches *batches);

#endif
