/* SPDX-License-Identifier: Apache-2.0 */
/* Order: the queued work that must end before free memory may be reused.
 *
 * Each stream whose work may still touch free ranges has an order. So has the device as a whole
 * (for blocks freed as cudaFree does), and idle memory. An order's ranges lie in its bins, for
 * requests that may use them at once, and in batches: a batch has the frees between two fences.
 * Frees go to the open batch. When a request of another order needs memory, the pool seals the
 * batch and takes one fence for all of it; once that is done, its ranges become idle, for
 * everybody. So the pool pays for a fence when memory is short, not for each free. */
#ifndef MEMSHIM_ALLOCATOR_SPACE_ORDERS_H
#define MEMSHIM_ALLOCATOR_SPACE_ORDERS_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/containers/chains.h"
#include "allocator/base/containers/slab.h"
#include "allocator/space/range.h"

struct ms_batch {
    struct ms_order *order;
    struct ms_batch *next;   /* the next younger batch of the order */
    struct ms_range *ranges; /* linked by free.batch_next; may become empty by reuse */
    uint64_t sequence;       /* larger is younger, within an order */
    ms_fence_t fence;        /* valid if fenced */
    unsigned holds; /* threads that wait for the fence, plus one while it is in its order */
    bool sealed;    /* takes no more frees: a fence taken later covers all of it */
    bool fenced;
};

struct ms_order {
    ms_stream_t stream; /* MS_STREAM_DEVICE: the device's order; unused in the idle one */
    struct ms_link by_stream;
    struct ms_order *prev, *next;   /* all orders but the idle one */
    struct ms_batch *oldest, *open; /* first and last of the list; the idle order has none */
    unsigned sealed_batches;
    bool gone; /* the stream was destroyed: no request uses this order any more */
    uint64_t ranges;
    struct ms_bins bins[MS_REGIONS];
};

struct ms_orders {
    struct ms_order idle;    /* ranges whose work is known to be done */
    struct ms_order *device; /* never null */
    struct ms_order *first;  /* the list of all orders but idle */
    struct ms_order *recent; /* the last one found: most programs use one stream at a time */
    struct ms_chains by_stream;
    struct ms_slab order_slab, batch_slab;
};

bool ms_orders_init(struct ms_orders *orders);
void ms_orders_destroy(struct ms_orders *orders);

/* The order of a stream; null: it has none. */
struct ms_order *ms_orders_find(struct ms_orders *orders, ms_stream_t stream);

/* Likewise, but makes a missing one. If the host is out of memory: the device's order, which waits
 * for all work. */
struct ms_order *ms_orders_need(struct ms_orders *orders, ms_stream_t stream);

/* Seals the open batch if it holds anything, and opens another. False: it sealed nothing. */
bool ms_order_seal(struct ms_orders *orders, struct ms_order *order);

/* Takes the oldest batch, sealed and without ranges, out of its order. The order's hold passes to
 * the caller. */
struct ms_batch *ms_order_drop_oldest(struct ms_order *order);

/* Drops one hold; the last one frees the batch. True: the caller must release *fence, without the
 * state lock. */
bool ms_batch_unhold(struct ms_orders *orders, struct ms_batch *batch, ms_fence_t *fence);

/* Forgets an order whose stream is gone, and which has no range and no sealed batch. */
void ms_order_forget(struct ms_orders *orders, struct ms_order *order);

#endif
