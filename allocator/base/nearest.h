/* SPDX-License-Identifier: Apache-2.0 */
/* How like two names are: for "did you mean". */
#ifndef MEMSHIM_ALLOCATOR_BASE_NEAREST_H
#define MEMSHIM_ALLOCATOR_BASE_NEAREST_H

#include <stddef.h>

#define MS_NEAREST_NAME_MAX 63 /* characters of a name that is compared with */

/* How far `word` is from a name of MS_NEAREST_NAME_MAX characters at most: insertions, deletions
 * and changes of a character; two neighbours that changed places are one. 0 where the name begins
 * with the word. SIZE_MAX where the two are no more alike than any two words, or the name is
 * longer. */
size_t ms_name_distance(const char *word, const char *name);

#endif
