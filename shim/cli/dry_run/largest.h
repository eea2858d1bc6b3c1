/* SPDX-License-Identifier: Apache-2.0 */
/* The largest tensor of a run. Shapes do not reach the allocator, so that its bytes stand for
 * one. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_LARGEST_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_LARGEST_H

#include "report/model/model.h"
#include "report/render/commands/dry_run.h"
#include "report/replay/recording.h"

/* Of those that are no part of the model, as its parameters, or an optimizer's, or a library's: the
 * first one of the largest size, and the least that its line asked for in a whole step. Its bytes
 * are 0 if there is none, or no host memory. recording: of that device. */
void ms_dry_largest_take(const struct ms_model *model, int device,
                         const struct ms_recording *recording, struct ms_dry_tensor *largest);

#endif
