/* SPDX-License-Identifier: Apache-2.0 */
/* The structs of the site table, which its files share and a digest stores (site_store.c). */
#ifndef MEMSHIM_REPORT_FOLD_SITE_TABLE_H
#define MEMSHIM_REPORT_FOLD_SITE_TABLE_H

#include <assert.h>

#include "allocator/base/buffer.h"
#include "allocator/base/event.h"
#include "report/fold/frozen.h"
#include "report/fold/live_set.h"
#include "report/fold/site_moves.h"
#include "report/fold/site_sums.h"

#define MS_PAGE_SITES 256u
#define MS_SITE_PAGES (MS_SITE_LIMIT / MS_PAGE_SITES)

/* The key of memory that is named by its address. Ids are never so large. */
#define FORWARDED_KEY (UINT64_C(1) << 63)
#define PINNED_KEY    (UINT64_C(1) << 62)

/* Keys of forwarded charges: one whose block is not recorded yet, and one that belongs to a block,
 * by the block's id. */
#define AWAITED_KEY (UINT64_C(1) << 61)
#define CLAIMED_KEY (UINT64_C(1) << 60)

static_assert(MS_FIRST_FORWARDED_ID < CLAIMED_KEY / 2, "a block's id is no such key");

/* A site's holdings at one moment. */
struct held {
    uint64_t bytes, forwarded_bytes;
    uint64_t count;              /* of blocks and tensors */
    uint64_t estimate, variance; /* with sampling (struct ms_site_sums) */
};

/* An epoch numbers a moment at which a device's live bytes were highest. A site's holdings then are
 * those of now, until they change; right before the first change they are saved. Two such moments
 * may matter at a time, with an even and an odd number: the peak, and the allocation of the newest
 * block, which is the peak unless it becomes an arena (aggregate.h). */
struct site {
    struct ms_site_sums sums;
    struct held now;
    struct {
        uint64_t epoch;
        struct held held;
    } kept[2];
    struct ms_lifetimes lifetimes;
};

struct device {
    struct site **pages; /* PAGES of them, each of PAGE_SITES sites, made when used */
    uint32_t end;        /* highest site seen, + 1 */
    uint64_t live_bytes, peak_bytes;
    uint64_t last_epoch, peak;
    uint64_t fresh_id;                   /* the newest block; 0: none, or it will not become an
                                            arena */
    uint32_t fresh_site;                 /* its site */
    uint64_t fresh_site_bytes;           /* that site's bytes, with it */
    uint64_t candidate, candidate_bytes; /* 0: the newest block made no peak */
};

struct ms_site_table {
    struct device devices[MS_DEVICE_COUNT];
    struct ms_live_set live;
    uint64_t sampling_bytes;
    uint32_t phase;            /* of the next events */
    uint32_t past_phase;       /* of those in `past` */
    uint64_t phase_blocks;     /* born in this phase, and live */
    uint64_t most_left;        /* gradients of a pass: the most */
    uint64_t allocation_ns;    /* the newest */
    uint32_t allocation_site;  /* its site */
    struct ms_buffer past;     /* struct ms_past: died since the last allocation */
    struct ms_buffer outlived; /* uint64_t, by pass: bytes that died after it */
    struct ms_buffer remained; /* likewise, of what was live at the end */
    struct ms_buffer recorded; /* uint8_t, by allocation: what ms_site_table_recorded returns */
    uint32_t allocations, recorded_first; /* recorded: from that one on */
    struct ms_moves moves;                /* whose sites are not looked up yet */
    struct ms_frozen frozen;
};

/* The site's place, made if it is missing. Null: memory ran out. id: below MS_SITE_LIMIT. */
struct site *ms_site_table_place(struct device *device, uint32_t id);

/* The next id. Skips whole pages of unused ids, because a damaged trace has ids far apart. */
static inline uint32_t ms_site_after(const struct device *device, uint32_t id)
{
    for (id++; id < device->end && id % MS_PAGE_SITES == 0 && !device->pages[id / MS_PAGE_SITES];) {
        id += MS_PAGE_SITES;
    }
    return id;
}

/* Null: it has none. */
static inline struct site *ms_site_table_find(const struct device *device, uint32_t id)
{
    struct site *page =
        device->pages && id < device->end ? device->pages[id / MS_PAGE_SITES] : NULL;

    return page ? &page[id % MS_PAGE_SITES] : NULL;
}

/* A sum never falls below zero: a damaged trace may free what it never allocated. */
static inline void ms_sum_take(uint64_t *sum, uint64_t bytes)
{
    *sum = *sum > bytes ? *sum - bytes : 0;
}

#endif
