/* SPDX-License-Identifier: Apache-2.0 */
/* The work spaces of a run's convolutions. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_WORKSPACES_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_WORKSPACES_H

#include <stdbool.h>

#include "report/model/model.h"
#include "report/replay/recording.h"

/* Makes them optional: where there is no room for one, PyTorch goes on to an algorithm without.
 * model: with names. False: no host memory. */
bool ms_dry_workspaces_mark(const struct ms_model *model, struct ms_recording *recording);

#endif
