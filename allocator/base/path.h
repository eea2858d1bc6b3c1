/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a path. */
#ifndef MEMSHIM_ALLOCATOR_BASE_PATH_H
#define MEMSHIM_ALLOCATOR_BASE_PATH_H

#include <string.h>

/* What follows the last slash, in place; the whole path where nothing does. */
static inline const char *ms_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

#endif
