/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a path. */
#ifndef MEMSHIM_ALLOCATOR_BASE_PATH_H
#define MEMSHIM_ALLOCATOR_BASE_PATH_H

#include <string.h>

/* The part after the last slash, in place; the whole path if there is none. */
static inline const char *ms_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

#endif
