/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the table share: its structs, which the digest of a trace keeps (site_store.c).
 */
#ifndef MEMSHIM_REPORT_FOLD_SITE_TABLE_H
#define MEMSHIM_REPORT_FOLD_SITE_TABLE_H

#include "allocator/base/buffer.h"
#include "report/fold/frozen.h"
#include "report/fold/live_set.h"
#include "report/fold/site_moves.h"
#include "report/fold/site_sums.h"

#define MS_PAGE_SITES 256u
#define MS_SITE_PAGES (MS_SITE_LIMIT / MS_PAGE_SITES)

/* What is named by its address and not by an id, which are never so large. */
#define FORWARDED_KEY (UINT64_C(1) << 63)
#define PINNED_KEY    (UINT64_C(1) << 62)

/* Of what is forwarded: a charge whose block is still to be recorded, and one that is a block's, by
 * the block's id. */
#define AWAITED_KEY (UINT64_C(1) << 61)
#define CLAIMED_KEY (UINT64_C(1) << 60)

/* What a site holds at one moment. */
struct held {
    uint64_t bytes, forwarded_bytes;
    uint64_t count; /* of blocks and tensors */
    double estimate, variance;
};

/* A moment of a device at which its live bytes stood highest is an epoch: a number. What a site
 * held then is what it holds now, until it changes; right before its first change it is kept. Two
 * such moments may matter at a time, and have an even and an odd number: the peak, and the
 * allocation of the newest block, which is the peak unless that turns out to be an arena
 * (aggregate.h). */
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
    uint64_t fresh_id;                   /* the newest block; 0: none, or no arena to be */
    uint32_t fresh_site;                 /* of it */
    uint64_t fresh_site_bytes;           /* what that held with it */
    uint64_t candidate, candidate_bytes; /* 0: the newest block made no peak */
};

struct ms_site_table {
    struct device devices[MS_DEVICE_COUNT];
    struct ms_live_set live;
    uint64_t sampling_bytes;
    uint32_t phase;            /* of the events to come */
    uint32_t past_phase;       /* of those in `past` */
    uint64_t phase_blocks;     /* born in this phase, and live */
    uint64_t most_left;        /* gradients of a pass: the most */
    uint64_t allocation_ns;    /* the newest */
    struct ms_buffer past;     /* struct ms_past: died since the last allocation */
    struct ms_buffer outlived; /* uint64_t, by pass */
    struct ms_buffer recorded; /* uint8_t, by allocation: what ms_site_table_recorded returns */
    uint32_t allocations, recorded_first; /* recorded: from that one on */
    struct ms_moves moves;                /* whose sites are not looked up yet */
    struct ms_frozen frozen;
};

/* The site's place, made where there is none yet. Null where memory ran out. id: below
 * MS_SITE_LIMIT. */
struct site *ms_site_table_place(struct device *device, uint32_t id);

/* The next id, past whole pages of ids that were never used: in a damaged trace ids are far apart.
 */
static inline uint32_t ms_site_after(const struct device *device, uint32_t id)
{
    for (id++; id < device->end && id % MS_PAGE_SITES == 0 && !device->pages[id / MS_PAGE_SITES];) {
        id += MS_PAGE_SITES;
    }
    return id;
}

/* Null where it has none. */
static inline struct site *ms_site_table_find(const struct device *device, uint32_t id)
{
    struct site *page =
        device->pages && id < device->end ? device->pages[id / MS_PAGE_SITES] : NULL;

    return page ? &page[id % MS_PAGE_SITES] : NULL;
}

/* A sum does not go below zero: a damaged trace may free what it never allocated. */
static inline void ms_sum_take(uint64_t *sum, uint64_t bytes)
{
    *sum = *sum > bytes ? *sum - bytes : 0;
}

#endif
