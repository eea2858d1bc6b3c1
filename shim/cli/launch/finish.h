/* SPDX-License-Identifier: Apache-2.0 */
/* After the command: the reports that its processes could not write themselves. */
#ifndef MEMSHIM_SHIM_CLI_LAUNCH_FINISH_H
#define MEMSHIM_SHIM_CLI_LAUNCH_FINISH_H

#include <stdbool.h>
#include <time.h>

/* Completes the reports of every run in the output folder, or in the one used where that cannot be
 * written, in which a process has begun a trace since `start`, and says where they are, on stderr,
 * if it is to say anything. torchrun and Slurm name the runs that they start, so the name is not
 * known beforehand. */
void ms_finish_runs(const char *output, time_t start, bool say);

#endif
