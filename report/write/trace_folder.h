/* SPDX-License-Identifier: Apache-2.0 */
/* The place of a trace: <output>/<run>/<program>-r<rank>-<host>-<pid>/, and <output>/latest. */
#ifndef MEMSHIM_REPORT_WRITE_TRACE_FOLDER_H
#define MEMSHIM_REPORT_WRITE_TRACE_FOLDER_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "report/write/writer.h"

/* Makes a path component out of any text: never empty, never hidden, never a way up. `otherwise`:
 * used for an empty one. */
void ms_place_name(const char *from, const char *otherwise, char *to, size_t to_bytes);

/* Makes `output` and the folders below it. `dir` (PATH_MAX bytes) gets the absolute path of the
 * process's folder, which is new. Several processes may do so at once. 0 or an errno.
 *
 * An unknown rank is left out of the name. Names are cut to 64 bytes, and all characters but
 * letters, digits and "._+-" become "_". If the folder exists already (an exec in the same process,
 * a pid used again), -2, -3, ... is added.
 *
 * ahead_ns: how far this host's clock is ahead of that which dated the new folder (a file server's,
 * which all hosts of a run share); 0: no difference can be seen. */
int ms_place_make(const char *output, const struct ms_trace_process *process, char *dir,
                  int64_t *ahead_ns);

/* The same if the program's user has not named `output`: only in a folder that is this user's alone
 * (own_folder.h). EPERM: it belongs to another. Its parent must exist. */
int ms_place_make_own(const char *output, const struct ms_trace_process *process, char *dir,
                      int64_t *ahead_ns);

/* Makes <output>/latest point to the run's folder, in one step. Does nothing if the file system has
 * no links, or something else has that name. dir: from ms_place_make. */
void ms_place_link(const char *dir);

/* Removes an empty folder made by ms_place_make, and its run's if that is empty too. */
void ms_place_drop(const char *dir);

#endif
