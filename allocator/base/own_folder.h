/* SPDX-License-Identifier: Apache-2.0 */
/* Folders whose name anybody can foretell, such as /tmp/memshim-out-0: somebody else may have made
 * them first, as a link to somewhere, or open for others to put links into. */
#ifndef MEMSHIM_ALLOCATOR_BASE_OWN_FOLDER_H
#define MEMSHIM_ALLOCATOR_BASE_OWN_FOLDER_H

#include <stdbool.h>

/* Why an open folder is none that only this user can put things into, as the end of a sentence;
 * null where it is one. */
const char *ms_own_folder_trouble(int folder);

/* Makes the folder (mode 0700) where it is missing, and opens it (O_PATH). -1 and errno; EPERM
 * where it is a link or no folder, belongs to another user, or can be written by others. Its parent
 * must be there, and be one in which nobody can rename what is ours (/tmp is). */
int ms_own_folder_open(const char *path);

/* Whether such a folder is there. Nothing is made. */
bool ms_own_folder_is(const char *path);

#endif
