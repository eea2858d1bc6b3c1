/* SPDX-License-Identifier: Apache-2.0 */
/* Bump allocation: pages that are filled one after the other. */
#include "report/symbols/bump.h"

#include <string.h>

#include "allocator/base/containers/pages.h"

#define ALIGN_BYTES 8u

struct ms_bump_page {
    struct ms_bump_page *older;
    size_t used;
};

static struct ms_bump_page *new_page(struct ms_bump *bump)
{
    struct ms_bump_page *page = ms_pages_map(MS_BUMP_PAGE_BYTES);

    if (!page) {
        return NULL;
    }
    page->older = bump->newest;
    page->used = sizeof(*page);
    bump->newest = page;
    return page;
}

void *ms_bump_take(struct ms_bump *bump, size_t bytes)
{
    const size_t rounded = (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    struct ms_bump_page *page = bump->newest;

    if (bytes > MS_BUMP_PAGE_BYTES - sizeof(*page)) {
        return NULL;
    }
    if (!page || page->used + rounded > MS_BUMP_PAGE_BYTES) {
        page = new_page(bump);
    }
    if (!page) {
        return NULL;
    }

    void *taken = (char *)page + page->used;

    page->used += rounded;
    return taken;
}

char *ms_bump_copy(struct ms_bump *bump, const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = ms_bump_take(bump, bytes);

    return copy ? memcpy(copy, text, bytes) : NULL;
}

void ms_bump_free(struct ms_bump *bump)
{
    while (bump->newest) {
        struct ms_bump_page *older = bump->newest->older;

        ms_pages_unmap(bump->newest, MS_BUMP_PAGE_BYTES);
        bump->newest = older;
    }
}
