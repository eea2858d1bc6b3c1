/* SPDX-License-Identifier: Apache-2.0 */
/* Where a dry run's processes read values that no kernel has computed. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_VALUES_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_VALUES_H

#include "report/model/model.h"
#include "report/render/commands/dry_run.h"

/* Adds what the trace has of them to the answer: the same line, reader, type and size of several
 * processes is one place. The model's sites have names. */
void ms_dry_values_take(const struct ms_model *model, struct ms_dry_answer *answer);

/* Those that were read most first. */
void ms_dry_values_sort(struct ms_dry_answer *answer);

#endif
