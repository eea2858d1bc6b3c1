/* SPDX-License-Identifier: Apache-2.0 */
/* How like two names are: for "did you mean". */
#ifndef MEMSHIM_ALLOCATOR_BASE_NEAREST_H
#define MEMSHIM_ALLOCATOR_BASE_NEAREST_H

#include <stddef.h>

#define MS_NEAREST_NAME_MAX 63 /* characters of a name that is compared with */

/* Edits (insert, delete, change) that make the name `to`, of MS_NEAREST_NAME_MAX characters at
 * most, of the first from_length characters of `from`. SIZE_MAX where the name is longer. */
size_t ms_edit_distance(const char *from, size_t from_length, const char *to);

#endif
