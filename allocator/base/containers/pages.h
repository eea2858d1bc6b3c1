/* SPDX-License-Identifier: Apache-2.0 */
/* Memory straight from the system, for what must not call malloc in a process that uses it itself,
 * and for what is too large for a stack. */
#ifndef MEMSHIM_ALLOCATOR_BASE_CONTAINERS_PAGES_H
#define MEMSHIM_ALLOCATOR_BASE_CONTAINERS_PAGES_H

#include <stddef.h>

/* Zeroed memory of at least `bytes`, backed by the system as it is touched. Null on failure, and
 * errno says why. */
void *ms_pages_map(size_t bytes);
/* Likewise, for memory that will be used densely: the system may use large pages for it. */
void *ms_pages_map_dense(size_t bytes);
/* Likewise, for memory of which mostly a small part is written: never large pages, not even of a
 * system that gives them by itself. */
void *ms_pages_map_sparse(size_t bytes);
void ms_pages_unmap(void *pages, size_t bytes);

/* The bytes of an array of so many pointers. */
static inline size_t ms_pointers_bytes(size_t count)
{
    return count * sizeof(void *);
}

#endif
