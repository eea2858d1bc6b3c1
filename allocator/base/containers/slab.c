/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of one size, in pages of our own: see slab.h. */
#include "allocator/base/containers/slab.h"

#include <stdint.h>
#include <string.h>

#include "allocator/base/containers/pages.h"

enum { FIRST_PAGE_BYTES = 64 << 10, LARGEST_PAGE_BYTES = 4 << 20 };

/* The header of a page; nodes keep its alignment to a cache line. */
enum { HEADER_BYTES = 64 };

struct ms_slab_page {
    struct ms_slab_page *next;
    size_t bytes;
};

void ms_slab_init(struct ms_slab *slab, size_t node_bytes)
{
    size_t unit = _Alignof(uint64_t);
    *slab = (struct ms_slab){.node_bytes = (node_bytes + unit - 1) / unit * unit,
                             .page_bytes = FIRST_PAGE_BYTES};
}

void ms_slab_init_sparse(struct ms_slab *slab, size_t node_bytes)
{
    ms_slab_init(slab, node_bytes);
    slab->sparse = true;
}

void ms_slab_destroy(struct ms_slab *slab)
{
    struct ms_slab_page *page = slab->pages;
    while (page != NULL) {
        struct ms_slab_page *next = page->next;
        ms_pages_unmap(page, page->bytes);
        page = next;
    }
    *slab = (struct ms_slab){
        .node_bytes = slab->node_bytes, .page_bytes = FIRST_PAGE_BYTES, .sparse = slab->sparse};
}

static bool add_page(struct ms_slab *slab)
{
    struct ms_slab_page *page =
        slab->sparse ? ms_pages_map_sparse(slab->page_bytes) : ms_pages_map_dense(slab->page_bytes);
    if (page == NULL) {
        return false;
    }
    while (slab->fresh_nodes > 0) {
        ms_slab_give(slab, slab->fresh);
        slab->fresh += slab->node_bytes;
        slab->fresh_nodes--;
    }
    *page = (struct ms_slab_page){.next = slab->pages, .bytes = slab->page_bytes};
    slab->pages = page;
    slab->fresh = (char *)page + HEADER_BYTES;
    slab->fresh_nodes = (slab->page_bytes - HEADER_BYTES) / slab->node_bytes;
    if (slab->page_bytes < LARGEST_PAGE_BYTES) {
        slab->page_bytes *= 2;
    }
    return true;
}

bool ms_slab_reserve(struct ms_slab *slab, size_t count)
{
    return slab->fresh_nodes >= count || add_page(slab);
}

void *ms_slab_take(struct ms_slab *slab)
{
    void *node = slab->free;
    if (node != NULL) {
        memcpy(&slab->free, node, sizeof(slab->free));
        return node;
    }
    if (slab->fresh_nodes == 0 && !add_page(slab)) {
        return NULL;
    }
    node = slab->fresh;
    slab->fresh += slab->node_bytes;
    slab->fresh_nodes--;
    return node;
}

void *ms_slab_take_zeroed(struct ms_slab *slab)
{
    bool used = slab->free != NULL;
    void *node = ms_slab_take(slab);
    if (node != NULL && used) {
        memset(node, 0, slab->node_bytes);
    }
    return node;
}

void ms_slab_give(struct ms_slab *slab, void *node)
{
    memcpy(node, &slab->free, sizeof(slab->free));
    slab->free = node;
}
