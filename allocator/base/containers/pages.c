/* SPDX-License-Identifier: Apache-2.0 */
/* Memory straight from the system: see pages.h. */
#include "allocator/base/containers/pages.h"

#include <sys/mman.h>

enum { DENSE_LEAST_BYTES = 4 << 20 }; /* fewer bytes gain nothing from large pages */

void *ms_pages_map(size_t bytes)
{
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return pages == MAP_FAILED ? NULL : pages;
}

void *ms_pages_map_dense(size_t bytes)
{
    void *pages = ms_pages_map(bytes);
    if (pages != NULL && bytes >= DENSE_LEAST_BYTES) {
        /* Advice only: a system without large pages refuses, and nothing changes. */
        (void)madvise(pages, bytes, MADV_HUGEPAGE);
    }
    return pages;
}

void *ms_pages_map_sparse(size_t bytes)
{
    void *pages = ms_pages_map(bytes);
    if (pages != NULL) {
        (void)madvise(pages, bytes, MADV_NOHUGEPAGE);
    }
    return pages;
}

void ms_pages_unmap(void *pages, size_t bytes)
{
    /* Cannot fail on a range that ms_pages_map returned. */
    (void)munmap(pages, bytes);
}
