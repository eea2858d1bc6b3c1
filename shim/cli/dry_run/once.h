/* SPDX-License-Identifier: Apache-2.0 */
/* One run of the command on the simulated GPU. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_ONCE_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_ONCE_H

#include "shim/cli/dry_run/call.h"
#include "shim/cli/dry_run/read.h"

/* Runs it, watches its traces below `output`, and stops it when everything was seen. answer: in:
 * number of devices, schedule and memory; out: how the run ended. -1 if it ran; otherwise the exit
 * status, after an error message. */
int ms_dry_once(const struct ms_dry_call *call, char *const *argv, const char *output,
                struct ms_dry_answer *answer);

#endif
