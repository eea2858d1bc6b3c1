/* SPDX-License-Identifier: Apache-2.0 */
/* Where a trace lies: <output>/<run>/<program>-r<rank>-<host>-<pid>/, and <output>/latest. */
#ifndef MEMSHIM_REPORT_WRITE_TRACE_FOLDER_H
#define MEMSHIM_REPORT_WRITE_TRACE_FOLDER_H

#include <limits.h>
#include <stddef.h>

#include "report/write/writer.h"

/* A path component out of anything: never empty, never hidden, never a way up. `otherwise`: instead
 * of nothing. */
void ms_place_name(const char *from, const char *otherwise, char *to, size_t to_bytes);

/* Makes `output` and the folders below it. `dir` (PATH_MAX bytes) gets the absolute path of the
 * process's folder, which is new. Several processes may do so at once. 0 or an errno.
 *
 * A rank that is not known is left out of the name. Names are cut to 64 bytes, and what is not a
 * letter, a digit or one of "._+-" becomes "_". A folder that exists already (an exec in the same
 * process, a pid that came back) gives -2, -3, ... at the end. */
int ms_place_make(const char *output, const struct ms_trace_process *process, char *dir);

/* The same where the program's user has not named `output`: only in a folder that is this user's
 * alone (own_folder.h); EPERM where it is another's. Its parent has to be there. */
int ms_place_make_own(const char *output, const struct ms_trace_process *process, char *dir);

/* Lets <output>/latest point to the run's folder, in one step. A file system without links, or
 * something else of that name, is left as it is. dir: as ms_place_make gave it. */
void ms_place_link(const char *dir);

/* Takes back an empty folder of ms_place_make's, and its run's if that is empty too. */
void ms_place_drop(const char *dir);

#endif
