/* SPDX-License-Identifier: Apache-2.0 */
/* Prepares the environment in which a command runs under memshim. `command` is memshim's own, for
 * error messages. */
#ifndef MEMSHIM_SHIM_CLI_LAUNCH_PRELOAD_H
#define MEMSHIM_SHIM_CLI_LAUNCH_PRELOAD_H

#include <stdbool.h>
#include <time.h>

/* Puts a library before those that are preloaded already. */
bool ms_preload(const char *command, const char *path);

/* Puts memshim's library before all others, sets the output folder (`output`, PATH_MAX bytes, gets
 * its full name) and the run's name, and offers to make the reports. */
bool ms_begin_run(const char *command, const char *output_folder, time_t start, char *output);

/* Prints that the program could not be run, and why (an errno). Returns the exit status, as a shell
 * does: 127 if there is no such program, otherwise 126. */
int ms_cannot_run(const char *command, const char *program, int error);

#endif
