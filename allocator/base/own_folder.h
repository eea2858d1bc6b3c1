/* SPDX-License-Identifier: Apache-2.0 */
/* Folders with a predictable name, such as /tmp/memshim-out-0. Somebody else may have made them
 * first: as a link to elsewhere, or open for others to put links into. */
#ifndef MEMSHIM_ALLOCATOR_BASE_OWN_FOLDER_H
#define MEMSHIM_ALLOCATOR_BASE_OWN_FOLDER_H

#include <stdbool.h>

/* Why others can put things into the open folder, as the end of a sentence; null: only this user
 * can. */
const char *ms_own_folder_trouble(int folder);

/* Makes the folder (mode 0700) if it is missing, and opens it (O_PATH). -1 and errno; EPERM: it is
 * a link or no folder, belongs to another user, or can be written by others. Its parent must exist,
 * and nobody else may be able to rename our files in it (as in /tmp). */
int ms_own_folder_open(const char *path);

/* Whether such a folder exists. Makes nothing. */
bool ms_own_folder_is(const char *path);

#endif
