/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of free memory, one for each stream, and their batches: see orders.h. */
#include "allocator/space/orders.h"

#include <string.h>

static struct ms_batch *batch_make(struct ms_orders *orders, struct ms_order *order,
                                   uint64_t sequence)
{
    struct ms_batch *batch = ms_slab_take(&orders->batch_slab);
    if (batch != NULL) {
        *batch = (struct ms_batch){.order = order, .sequence = sequence, .holds = 1};
    }
    return batch;
}

static struct ms_order *order_make(struct ms_orders *orders, ms_stream_t stream)
{
    struct ms_order *order = ms_slab_take_zeroed(&orders->order_slab);
    if (order == NULL) {
        return NULL;
    }
    order->stream = stream;
    order->open = batch_make(orders, order, 1);
    if (order->open == NULL) {
        ms_slab_give(&orders->order_slab, order);
        return NULL;
    }
    order->oldest = order->open;
    order->next = orders->first;
    if (order->next != NULL) {
        order->next->prev = order;
    }
    orders->first = order;
    ms_chains_enter(&orders->by_stream, order, stream);
    return order;
}

bool ms_orders_init(struct ms_orders *orders)
{
    memset(orders, 0, sizeof(*orders));
    orders->by_stream.offset = offsetof(struct ms_order, by_stream);
    ms_slab_init_sparse(&orders->order_slab, sizeof(struct ms_order));
    ms_slab_init(&orders->batch_slab, sizeof(struct ms_batch));
    orders->device = order_make(orders, MS_STREAM_DEVICE);
    orders->recent = orders->device;
    return orders->device != NULL;
}

void ms_orders_destroy(struct ms_orders *orders)
{
    ms_slab_destroy(&orders->order_slab);
    ms_slab_destroy(&orders->batch_slab);
}

struct ms_order *ms_orders_find(struct ms_orders *orders, ms_stream_t stream)
{
    if (orders->recent->stream == stream) {
        return orders->recent;
    }
    struct ms_order *order = ms_chains_find(&orders->by_stream, stream);
    if (order != NULL) {
        orders->recent = order;
    }
    return order;
}

struct ms_order *ms_orders_need(struct ms_orders *orders, ms_stream_t stream)
{
    struct ms_order *order = ms_orders_find(orders, stream);
    if (order == NULL) {
        order = order_make(orders, stream);
    }
    return order != NULL ? order : orders->device;
}

bool ms_order_seal(struct ms_orders *orders, struct ms_order *order)
{
    struct ms_batch *open = order->open;
    if (open->ranges == NULL) {
        return false;
    }
    struct ms_batch *younger = batch_make(orders, order, open->sequence + 1);
    if (younger == NULL) {
        return false;
    }
    open->sealed = true;
    open->next = younger;
    order->open = younger;
    order->sealed_batches++;
    return true;
}

bool ms_batch_unhold(struct ms_orders *orders, struct ms_batch *batch, ms_fence_t *fence)
{
    if (--batch->holds != 0) {
        return false;
    }
    bool fenced = batch->fenced;
    *fence = batch->fence;
    ms_slab_give(&orders->batch_slab, batch);
    return fenced;
}

struct ms_batch *ms_order_drop_oldest(struct ms_order *order)
{
    struct ms_batch *batch = order->oldest;
    order->oldest = batch->next;
    order->sealed_batches--;
    return batch;
}

void ms_order_forget(struct ms_orders *orders, struct ms_order *order)
{
    ms_chains_remove(&orders->by_stream, order);
    if (order->prev != NULL) {
        order->prev->next = order->next;
    } else {
        orders->first = order->next;
    }
    if (order->next != NULL) {
        order->next->prev = order->prev;
    }
    if (orders->recent == order) {
        orders->recent = orders->device;
    }
    ms_slab_give(&orders->batch_slab, order->open);
    ms_slab_give(&orders->order_slab, order);
}
