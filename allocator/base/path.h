/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a path. */
#ifndef MEMSHIM_ALLOCATOR_BASE_PATH_H
#define MEMSHIM_ALLOCATOR_BASE_PATH_H

#include <stdbool.h>
#include <string.h>

/* The part after the last slash, in place; the whole path if there is none. */
static inline const char *ms_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

/* Whether the name has this ending behind something else. */
static inline bool ms_name_ends_with(const char *name, const char *ending)
{
    const size_t length = strlen(name), of_ending = strlen(ending);
    return length > of_ending && strcmp(name + length - of_ending, ending) == 0;
}

#endif
