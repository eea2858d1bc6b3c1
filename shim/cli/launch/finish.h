/* SPDX-License-Identifier: Apache-2.0 */
/* After the command: makes the reports that its processes could not write themselves. */
#ifndef MEMSHIM_SHIM_CLI_LAUNCH_FINISH_H
#define MEMSHIM_SHIM_CLI_LAUNCH_FINISH_H

#include <stdbool.h>
#include <time.h>

/* Completes the reports of every run in the output folder (or in its replacement, if that cannot be
 * written) in which a process below this one has traced since `start`. With `say`, prints where
 * they are to stderr. The folders are searched because torchrun and Slurm choose the names of their
 * runs; the headers of their traces have this process's pid. */
void ms_finish_runs(const char *output, time_t start, bool say);

#endif
