/* SPDX-License-Identifier: Apache-2.0 */
/* Where the parts of this installation are. */
#ifndef MEMSHIM_SHIM_CLI_LAUNCH_PLACE_H
#define MEMSHIM_SHIM_CLI_LAUNCH_PLACE_H

#include <limits.h>
#include <stdbool.h>

#define MS_CLI_LIBRARY "libmemshim.so"

/* folder/name. False where it does not fit. */
bool ms_cli_join_path(char path[PATH_MAX], const char *folder, const char *name);

/* The folder of this executable. False, with errno: it is not known. */
bool ms_cli_own_folder(char folder[PATH_MAX]);

/* The library that belongs to this executable: beside it in a build folder, in the library folder
 * when installed. By its plain name, whatever that is a link to. */
bool ms_cli_find_library(char path[PATH_MAX]);

/* A folder that belongs to this executable: of one name beside it in a build folder, of another in
 * the library folder when installed. */
bool ms_cli_find_folder(char path[PATH_MAX], const char *built, const char *installed);

/* The executable file that a command's first word stands for. */
bool ms_cli_find_program(const char *word, char path[PATH_MAX]);

#endif
