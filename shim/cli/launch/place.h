/* SPDX-License-Identifier: Apache-2.0 */
/* Where the parts of this installation are. */
#ifndef MEMSHIM_SHIM_CLI_LAUNCH_PLACE_H
#define MEMSHIM_SHIM_CLI_LAUNCH_PLACE_H

#include <limits.h>
#include <stdbool.h>

#define MS_CLI_LIBRARY "libmemshim.so"

/* Writes folder/name. False: it does not fit. */
bool ms_cli_join_path(char path[PATH_MAX], const char *folder, const char *name);

/* The folder of this executable. False, with errno: unknown. */
bool ms_cli_own_folder(char folder[PATH_MAX]);

/* The library of this executable: beside it in a build folder, in the library folder when
 * installed. By its plain name, which may be a link. */
bool ms_cli_find_library(char path[PATH_MAX]);

/* A folder of this executable: named `built` beside it in a build folder, or of another name in the
 * library folder when installed. */
bool ms_cli_find_folder(char path[PATH_MAX], const char *built, const char *installed);

/* The executable file that a command's first word names. */
bool ms_cli_find_program(const char *word, char path[PATH_MAX]);

#endif
