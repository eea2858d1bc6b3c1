/* SPDX-License-Identifier: Apache-2.0 */
/* What stands before a command runs under memshim: its environment. `command` is memshim's own, for
 * what there is to complain of. */
#ifndef MEMSHIM_SHIM_CLI_LAUNCH_PRELOAD_H
#define MEMSHIM_SHIM_CLI_LAUNCH_PRELOAD_H

#include <stdbool.h>
#include <time.h>

/* Puts a library before those that are preloaded already. */
bool ms_preload(const char *command, const char *path);

/* Puts memshim's library before all others, settles the output folder (whose whole name goes to
 * `output`, PATH_MAX bytes) and the run's name, and offers to make the reports. */
bool ms_begin_run(const char *command, const char *output_folder, time_t start, char *output);

/* Says that the program could not be run, and why (an errno). The exit status, as a shell has it:
 * 127 where there is no such program, else 126. */
int ms_cannot_run(const char *command, const char *program, int error);

#endif
