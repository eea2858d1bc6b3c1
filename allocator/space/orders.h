/* SPDX-License-Identifier: Apache-2.0 */
/* Order: what the last use of free memory waits for.
 *
 * Each stream whose work may still touch free ranges has an order, and so has the device as a whole
 * (blocks freed as cudaFree does) and what is known idle. An order's ranges lie in its bins, for
 * requests that may use them at once, and in batches: a batch is what was freed between two fences.
 * Frees go to the open batch; when memory is wanted beyond the order, the batch is sealed, one
 * fence is taken for all of it, and when that has completed its ranges become idle, for everybody.
 * So fences cost per need, not per free. */
#ifndef MEMSHIM_ALLOCATOR_SPACE_ORDERS_H
#define MEMSHIM_ALLOCATOR_SPACE_ORDERS_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/containers/chains.h"
#include "allocator/base/containers/slab.h"
#include "allocator/space/range.h"

struct ms_batch {
    struct ms_order *order;
    struct ms_batch *next;   /* the next younger one of the order */
    struct ms_range *ranges; /* linked by free.batch_next; may become empty by reuse */
    uint64_t sequence;       /* larger is younger, within an order */
    ms_fence_t fence;        /* valid if fenced */
    unsigned holds; /* threads that wait for the fence, plus one while it is in its order */
    bool sealed;    /* takes no more frees: a fence taken from now on covers it */
    bool fenced;
};

struct ms_order {
    ms_stream_t stream; /* MS_STREAM_DEVICE: the device's order; unused in the idle one */
    struct ms_link by_stream;
    struct ms_order *prev, *next;   /* all orders but the idle one */
    struct ms_batch *oldest, *open; /* first and last of the list; the idle order has none */
    unsigned sealed_batches;
    bool gone; /* the stream was destroyed: nobody requests in this order any more */
    uint64_t ranges;
    struct ms_bins bins[MS_REGIONS];
};

struct ms_orders {
    struct ms_order idle;    /* ranges whose last use the host has seen complete */
    struct ms_order *device; /* always there */
    struct ms_order *first;  /* every order but idle */
    struct ms_order *recent; /* of the last look-up: most programs use one stream at a time */
    struct ms_chains by_stream;
    struct ms_slab order_slab, batch_slab;
};

bool ms_orders_init(struct ms_orders *orders);
void ms_orders_destroy(struct ms_orders *orders);

/* The order of a stream; null where it has none. */
struct ms_order *ms_orders_find(struct ms_orders *orders, ms_stream_t stream);

/* Likewise, made where it has none; the device's order, which every use comes before, when the host
 * is out of memory. */
struct ms_order *ms_orders_need(struct ms_orders *orders, ms_stream_t stream);

/* Seals the open batch, where it holds anything, and opens another. False if nothing was sealed. */
bool ms_order_seal(struct ms_orders *orders, struct ms_order *order);

/* Takes the oldest batch, sealed and without ranges, out of its order. The order's hold passes to
 * the caller. */
struct ms_batch *ms_order_drop_oldest(struct ms_order *order);

/* Drops one hold; the last one frees the batch. True: the caller must release *fence, outside the
 * state lock. */
bool ms_batch_unhold(struct ms_orders *orders, struct ms_batch *batch, ms_fence_t *fence);

/* Forgets an order whose stream is gone, which holds no range and has no sealed batch. */
void ms_order_forget(struct ms_orders *orders, struct ms_order *order);

#endif
