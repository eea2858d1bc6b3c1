/* SPDX-License-Identifier: Apache-2.0 */
/* Where a dry run's processes read values that no kernel has computed. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_VALUES_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_VALUES_H

#include "report/model/model.h"
#include "report/render/commands/dry_run.h"

/* Adds the reads in the trace to the answer. Reads of several processes with the same line, reader,
 * type and size are one place. The model's sites must have names. */
void ms_dry_values_take(const struct ms_model *model, struct ms_dry_answer *answer);

/* Sorts by number of reads, the most first. */
void ms_dry_values_sort(struct ms_dry_answer *answer);

#endif
