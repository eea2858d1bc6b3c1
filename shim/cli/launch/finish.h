/* SPDX-License-Identifier: Apache-2.0 */
/* After the command: the reports that its processes could not write themselves. */
#ifndef MEMSHIM_SHIM_CLI_LAUNCH_FINISH_H
#define MEMSHIM_SHIM_CLI_LAUNCH_FINISH_H

#include <stdbool.h>
#include <time.h>

/* Completes the reports of every run in the output folder, or in the one used where that cannot be
 * written, in which a process below this one has traced since `start`. `say`: names the reports on
 * stderr. torchrun and Slurm name the runs that they start, so a run's name is not known
 * beforehand; its traces' headers have this process's pid. */
void ms_finish_runs(const char *output, time_t start, bool say);

#endif
