/* SPDX-License-Identifier: Apache-2.0 */
/* Follows events up to the moment, and keeps the memory that is live then. */
#include "report/read/instant.h"

#include <stdlib.h>
#include <string.h>

bool ms_instant_begin(struct ms_instant *instant)
{
    memset(instant, 0, sizeof(*instant));
    instant->by_id = ms_numbers_new();
    instant->sums = calloc(MS_DEVICE_COUNT, sizeof(*instant->sums));
    return instant->by_id && instant->sums;
}

void ms_instant_free(struct ms_instant *instant)
{
    ms_buffer_free(&instant->standing);
    ms_numbers_delete(instant->by_id);
    free(instant->sums);
}

struct ms_standing *ms_instant_find(const struct ms_instant *instant, uint64_t id)
{
    const uint32_t index = ms_numbers_get(instant->by_id, id);

    return index == MS_NUMBER_NONE ? NULL : ms_instant_at(instant, index);
}

static void add(struct ms_instant *instant, const struct ms_event *event, uint64_t time_ns)
{
    const size_t index = ms_instant_count(instant);
    struct ms_standing *standing = NULL;

    /* A damaged trace may name one twice. */
    if (event->id == 0 || ms_instant_find(instant, event->id)) {
        return;
    }
    if (index < MS_NUMBER_NONE && ms_numbers_put(instant->by_id, event->id, (uint32_t)index)) {
        standing = ms_buffer_extend(&instant->standing, sizeof(*standing));
    }
    if (!standing) {
        instant->failed = true;
        return;
    }
    *standing = (struct ms_standing){.id = event->id,
                                     .addr = event->addr,
                                     .bytes = event->bytes,
                                     .born_ns = time_ns,
                                     .stream = event->stream,
                                     .site = event->site,
                                     .device = event->device,
                                     .tensor = event->kind == MS_EVENT_TENSOR_ALLOC};
}

/* Moves the last one into its place. */
static void remove_at(struct ms_instant *instant, size_t index)
{
    const size_t last = ms_instant_count(instant) - 1;

    ms_numbers_remove(instant->by_id, ms_instant_at(instant, index)->id);
    if (index != last) {
        *ms_instant_at(instant, index) = *ms_instant_at(instant, last);
        if (!ms_numbers_put(instant->by_id, ms_instant_at(instant, index)->id, (uint32_t)index)) {
            instant->failed = true;
        }
    }
    instant->standing.bytes -= sizeof(struct ms_standing);
}

void ms_instant_take(struct ms_instant *instant, const struct ms_event *event, uint64_t time_ns)
{
    const struct ms_standing *standing;

    if (!ms_event_has_device(event) || event->device >= MS_DEVICE_COUNT) {
        return;
    }
    ms_aggregate_apply(&instant->sums[event->device], event, time_ns);
    switch (event->kind) {
    case MS_EVENT_BLOCK_ALLOC:
    case MS_EVENT_TENSOR_ALLOC:
        add(instant, event, time_ns);
        break;
    case MS_EVENT_BLOCK_ARENA:
    case MS_EVENT_BLOCK_FREE:
    case MS_EVENT_TENSOR_FREE:
        standing = ms_instant_find(instant, event->id);
        if (standing && standing->device == event->device) {
            remove_at(instant, (size_t)(standing - ms_instant_at(instant, 0)));
        }
        break;
    default:
        break;
    }
}

void ms_instant_gap(struct ms_instant *instant, uint8_t device, const struct ms_aggregate *sums,
                    uint64_t time_ns)
{
    for (size_t i = ms_instant_count(instant); i-- > 0;) {
        if (ms_instant_at(instant, i)->device == device) {
            remove_at(instant, i);
        }
    }
    instant->sums[device] = *sums;
    instant->since_ns[device] = time_ns;
}
