/* SPDX-License-Identifier: Apache-2.0 */
/* Packs events from the tail into the window, the sums and the timeline, a row of them at once. */
#include "report/write/writer_state.h"

#define RETRY_EVENTS 65536u /* lost events between two tries to get room again */

void ms_sums_commit(struct ms_trace *trace, uint8_t device, uint64_t end_event)
{
    struct ms_device_page *page = trace->pages[device];
    const uint64_t next = atomic_load_explicit(&page->current, memory_order_relaxed) + 1;
    struct ms_device_sums *copy = &page->copy[next & 1];

    /* A live reader must see that the other copy is valid before this one changes. */
    atomic_thread_fence(memory_order_release);
    copy->end_event = end_event;
    copy->sums = trace->sums[device];
    ms_trace_put(trace, copy, sizeof(*copy));
    atomic_store_explicit(&page->current, next, memory_order_release);
    ms_trace_put(trace, &page->current, sizeof(page->current));
}

/* The buckets first, and then their count. */
static void put_series(struct ms_trace *trace, struct ms_series_pair *pair)
{
    struct ms_series *series =
        &pair->copy[atomic_load_explicit(&pair->current, memory_order_relaxed) & 1];

    ms_trace_put(trace, series->buckets, sizeof(series->buckets));
    ms_trace_put(trace, series, offsetof(struct ms_series, buckets));
    ms_trace_put(trace, &pair->current, sizeof(pair->current));
}

/* Adds the beginning of the row, events of one device, to its sums and timeline. */
static size_t fold_some(struct ms_trace *trace, const struct ms_timed_event *row, size_t count)
    MS_REQUIRES(ms_trace_role)
{
    const uint8_t device = row->event.device;
    struct ms_aggregate *sums = &trace->sums[device];
    struct ms_series_pair *series = &trace->pages[device]->series;
    uint64_t live_bytes[MS_TAIL_EVENTS];
    const size_t alike = ms_aggregate_apply_row(sums, row, count, live_bytes);
    struct ms_moment moment;

    if (alike > 0) {
        moment = ms_aggregate_moment(sums, row->time_ns);
        ms_series_note_row(series, &moment, row, live_bytes, alike);
        return alike;
    }
    ms_aggregate_apply(sums, &row->event, row->time_ns);
    moment = ms_aggregate_moment(sums, row->time_ns);
    ms_series_note(series, &moment);
    return 1;
}

static void fold(struct ms_trace *trace, const struct ms_timed_event *row, size_t count)
    MS_REQUIRES(ms_trace_role)
{
    uint64_t touched = 0;

    for (size_t done = 0; done < count;) {
        if (!ms_event_has_device(&row[done].event)) {
            done++;
            continue;
        }
        touched |= UINT64_C(1) << row[done].event.device;
        done += fold_some(trace, row + done, count - done);
    }
    trace->packed += count;
    for (; touched; touched &= touched - 1) {
        const uint8_t device = (uint8_t)__builtin_ctzll(touched);

        put_series(trace, &trace->pages[device]->series);
        ms_sums_commit(trace, device, trace->packed);
    }
}

static bool have_room(const struct ms_trace *trace) MS_REQUIRES(ms_trace_role)
{
    return trace->window.header &&
           trace->payload_bytes + MS_RECORD_MAX_BYTES <= trace->payload_room;
}

static size_t record(struct ms_trace *trace, const struct ms_timed_event *row, size_t count)
    MS_REQUIRES(ms_trace_role)
{
    size_t bytes;
    const size_t written =
        ms_encode_row(&trace->codec, row, count, trace->payload + trace->payload_bytes,
                      trace->payload_room - trace->payload_bytes, &bytes);

    ms_trace_put(trace, trace->payload + trace->payload_bytes, bytes);
    trace->payload_bytes += (uint32_t)bytes;
    trace->window_events += (uint32_t)written;
    atomic_store_explicit(&trace->window.header->committed,
                          trace->payload_bytes | (uint64_t)trace->window_events << 32,
                          memory_order_release);
    ms_trace_put(trace, &trace->window.header->committed, sizeof(trace->window.header->committed));
    return written;
}

/* The window in use is full: takes the next. Needs the lock, which it releases in between. False:
 * there is no room for another one. */
static bool grow(struct ms_trace *trace) MS_REQUIRES(ms_trace_role)
{
    const uint64_t lost = atomic_load_explicit(&trace->header->lost_events, memory_order_relaxed);

    if (lost < trace->retry_at_lost) {
        return false;
    }
    ms_trace_release(trace);

    const bool ready = ms_window_prepare(trace);

    ms_trace_acquire(trace);
    if (!ready) {
        trace->retry_at_lost = lost + RETRY_EVENTS;
    }
    return ready;
}

void ms_tail_pack(struct ms_trace *trace, bool may_grow)
{
    while (trace->packed != trace->recorded) {
        const uint64_t first = trace->packed % MS_TAIL_EVENTS;
        const struct ms_timed_event *row = &trace->tail->events[first];
        const uint64_t waiting = trace->recorded - trace->packed;
        const size_t count =
            MS_TAIL_EVENTS - first < waiting ? MS_TAIL_EVENTS - first : (size_t)waiting;

        if (have_room(trace)) {
            fold(trace, row, record(trace, row, count));
        } else if (trace->spare.header && !trace->retired.header) {
            ms_window_switch(trace, row->time_ns);
        } else if (may_grow) {
            may_grow = grow(trace); /* other threads may have packed meanwhile: check again */
        } else {
            ms_trace_add(trace, &trace->header->lost_events, count);
            fold(trace, row, count);
        }
    }
}
