#include "report/writer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "report/writer_internal.h"

#define MAX_NOTE_BYTES  2048u
#define MAX_NOTES_BYTES (64u << 10)
#define MAX_THRESHOLDS  4096u
#define RETRY_EVENTS    65536u /* lost ones between two tries to get room again */

/* Takes the lock and gives the device's page; null, without the lock, where the trace is closed or
 * there is no memory for one. */
static struct ms_device_page *lock_device(struct ms_trace *trace, uint8_t device)
{
    if (device >= MS_DEVICE_COUNT) {
        return NULL;
    }
    for (int tries = 0; tries < 2; tries++) {
        ms_lock_acquire(&trace->lock);

        struct ms_device_page *page = trace->devices[device];
        const bool closed = trace->closed;

        if (page && !closed) {
            return page;
        }
        ms_lock_release(&trace->lock);
        if (closed || tries > 0) {
            return NULL;
        }
        ms_device_make(trace, device);
    }
    return NULL;
}

static void begin_change(struct ms_device_page *page)
{
    uint64_t changing = atomic_load_explicit(&page->changing, memory_order_relaxed);

    atomic_store_explicit(&page->changing, changing + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

static void end_change(struct ms_device_page *page)
{
    uint64_t changing = atomic_load_explicit(&page->changing, memory_order_relaxed);

    atomic_store_explicit(&page->changing, changing + 1, memory_order_release);
}

/* Needs the lock. False where the log is full. */
static bool put_entry(struct ms_trace *trace, struct ms_log_entry entry, const void *payload)
{
    struct ms_extent_header *header = trace->log.header;
    uint64_t committed = atomic_load_explicit(&header->committed, memory_order_relaxed);
    uint64_t used = committed & UINT32_MAX;
    uint64_t bytes = sizeof(entry) + ((entry.bytes + 7u) & ~7ull);
    uint8_t *at = ms_mapped_payload(header) + used;

    if (header->payload_offset + used + bytes > MS_EXTENT_BYTES) {
        return false;
    }
    entry.event = atomic_load_explicit(&trace->header->events, memory_order_relaxed);
    memcpy(at, &entry, sizeof(entry));
    memcpy(at + sizeof(entry), payload, entry.bytes);
    atomic_store_explicit(&header->committed, committed + bytes + (1ull << 32),
                          memory_order_release);
    return true;
}

/* ---- events ---- */

/* Whether the window has room for one more record. Needs the lock. */
static bool have_room(struct ms_trace *trace)
{
    return trace->window.header && trace->payload_bytes < trace->payload_room;
}

/* Gets the next window, if there is room for one. Needs the lock, which it lets go in between. */
static void make_room(struct ms_trace *trace)
{
    while (!have_room(trace) && !trace->closed) {
        uint64_t lost = atomic_load_explicit(&trace->header->lost_events, memory_order_relaxed);

        if (trace->spare.header && !trace->retired.header) {
            ms_window_switch(trace, ms_trace_time_ns(trace));
            return;
        }
        if (lost < trace->retry_at_lost) {
            return;
        }
        ms_lock_release(&trace->lock);

        bool ready = ms_window_prepare(trace);

        ms_lock_acquire(&trace->lock);
        if (!ready) {
            trace->retry_at_lost = lost + RETRY_EVENTS;
            return;
        }
    }
}

/* Needs the lock. */
static void record(struct ms_trace *trace, struct ms_device_page *page,
                   const struct ms_event *event)
{
    struct ms_extent_header *header = trace->window.header;
    const uint64_t now_ns = ms_trace_time_ns(trace);

    if (have_room(trace)) {
        trace->payload_bytes += (uint32_t)ms_encode(&trace->codec, event, now_ns,
                                                    trace->payload + trace->payload_bytes);
        trace->window_events++;
        atomic_store_explicit(&header->committed,
                              trace->payload_bytes | (uint64_t)trace->window_events << 32,
                              memory_order_release);
    } else {
        ms_trace_add(&trace->header->lost_events, 1);
    }
    ms_trace_add(&trace->header->events, 1);
    begin_change(page);
    ms_aggregate_apply(&page->sums, event, now_ns);
    end_change(page);

    const struct ms_moment moment = ms_aggregate_moment(&page->sums, now_ns);

    ms_series_note(&page->series, &moment);
}

/* Needs the lock. */
static void note_threshold(struct ms_trace *trace, const struct ms_event *event)
{
    const struct ms_log_threshold payload = {event->aux, event->bytes};
    const struct ms_log_entry entry = {
        .kind = MS_LOG_THRESHOLD,
        .bytes = sizeof(payload),
        .time_ns = ms_trace_time_ns(trace),
        .device = event->device,
    };

    if (trace->thresholds < MAX_THRESHOLDS && put_entry(trace, entry, &payload)) {
        trace->thresholds++;
    } else {
        ms_trace_add(&trace->header->lost_entries, 1);
    }
}

void ms_trace_emit(ms_trace_t *trace, const struct ms_event *event)
{
    if (event->kind == MS_EVENT_NONE || event->kind >= MS_EVENT_KIND_COUNT ||
        event->owner >= MS_OWNER_COUNT) {
        return;
    }

    const int saved = errno;
    struct ms_device_page *page = lock_device(trace, event->device);

    if (!page) {
        errno = saved;
        return;
    }
    if (!have_room(trace)) {
        make_room(trace);
    }
    if (!trace->closed) {
        record(trace, page, event);
        if (event->kind == MS_EVENT_THRESHOLD) {
            note_threshold(trace, event);
        }
    }

    const bool full = trace->retired.header;

    ms_lock_release(&trace->lock);
    if (full) {
        (void)ms_window_prepare(trace);
    }
    errno = saved;
}

void ms_trace_oom(ms_trace_t *trace, uint8_t device, const struct ms_oom_state *state)
{
    const int saved = errno;

    for (int tries = 0; tries < 2; tries++) {
        struct ms_device_page *page = lock_device(trace, device);

        if (!page) {
            break;
        }

        const struct ms_log_oom payload = {
            .state = *state,
            .counters = page->sums.now,
            .allocations = page->sums.allocations + page->sums.births,
            .peak_live = ms_aggregate_peak_live(&page->sums),
        };
        const struct ms_log_entry entry = {
            .kind = MS_LOG_OOM,
            .bytes = sizeof(payload),
            .time_ns = ms_trace_time_ns(trace),
            .device = device,
        };
        const bool put = put_entry(trace, entry, &payload);

        if (put || tries > 0) {
            begin_change(page);
            ms_aggregate_oom(&page->sums, state->source == MS_OOM_TORCH);
            end_change(page);
            ms_trace_add(&trace->header->lost_entries, put ? 0 : 1);
            ms_lock_release(&trace->lock);
            break;
        }
        ms_lock_release(&trace->lock);
        (void)ms_log_next(trace);
    }
    errno = saved;
}

void ms_trace_note(ms_trace_t *trace, const char *text)
{
    const int saved = errno;
    const struct ms_log_entry entry = {
        .kind = MS_LOG_NOTE,
        .bytes = (uint32_t)strnlen(text, MAX_NOTE_BYTES),
    };

    for (int tries = 0; tries < 2; tries++) {
        ms_lock_acquire(&trace->lock);

        struct ms_log_entry timed = entry;
        const bool wanted = !trace->closed && trace->note_bytes + entry.bytes <= MAX_NOTES_BYTES;
        bool put = false;

        if (wanted) {
            timed.time_ns = ms_trace_time_ns(trace);
            put = put_entry(trace, timed, text);
            trace->note_bytes += put ? entry.bytes : 0;
        }
        if (!trace->closed && !put && (!wanted || tries > 0)) {
            ms_trace_add(&trace->header->lost_entries, 1);
        }
        ms_lock_release(&trace->lock);
        if (put || !wanted) {
            break;
        }
        (void)ms_log_next(trace);
    }
    errno = saved;
}

/* ---- what is said once ---- */

void ms_trace_device(ms_trace_t *trace, uint8_t device, const char *name, const uint8_t *uuid,
                     uint64_t total_bytes, uint64_t cap_bytes)
{
    const struct ms_event cap = {
        .kind = MS_EVENT_CAP,
        .device = device,
        .bytes = cap_bytes,
        .aux = total_bytes,
    };
    const int saved = errno;
    struct ms_device_page *page = lock_device(trace, device);

    if (page) {
        snprintf(page->name, sizeof(page->name), "%s", name ? name : "");
        if (uuid) {
            memcpy(page->uuid, uuid, sizeof(page->uuid));
            page->has_uuid = 1;
        }
        ms_lock_release(&trace->lock);
        ms_trace_emit(trace, &cap);
    }
    errno = saved;
}

void ms_trace_version(ms_trace_t *trace, const char *what, const char *version)
{
    static const char *const names[MS_VERSION_COUNT] = {
        [MS_VERSION_DRIVER] = "driver",
        [MS_VERSION_CUDA] = "cuda",
        [MS_VERSION_TORCH] = "torch",
    };

    ms_lock_acquire(&trace->lock);
    for (int slot = 0; slot < MS_VERSION_COUNT && !trace->closed; slot++) {
        if (strcmp(names[slot], what) == 0) {
            snprintf(trace->header->versions[slot], MS_VERSION_BYTES, "%s", version);
        }
    }
    ms_lock_release(&trace->lock);
}
