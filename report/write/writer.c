/* SPDX-License-Identifier: Apache-2.0 */
/* The path of every event into the tail; and the entries of the log. */
#include "report/write/writer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "report/write/window_guard.h"
#include "report/write/writer_state.h"

#define MAX_NOTE_BYTES  2048u
#define MAX_NOTES_BYTES (64u << 10)
#define MAX_THRESHOLDS  4096u

/* Stands for a device in events of none. */
#define NO_DEVICE UINT8_MAX

/* Keeps rare cases out of the path of every event. */
#define RARE __attribute__((noinline, cold))

/* In a preloaded library: reached without a call. */
static _Thread_local __attribute__((tls_model("initial-exec"))) bool thread_is_met;

/* Needs the lock. False: the log is full. */
static bool put_entry(struct ms_trace *trace, struct ms_log_entry entry, const void *payload)
    MS_REQUIRES(ms_trace_role)
{
    entry.event = trace->recorded;
    return ms_mapped_append(trace, trace->log.header, &entry, sizeof(entry), payload, entry.bytes);
}

/* ---- events ---- */

static inline bool is_known(const struct ms_trace *trace, uint8_t device)
{
    return device < MS_DEVICE_COUNT ? trace->pages[device] != NULL : device == NO_DEVICE;
}

/* Whether an event of this device can be recorded. */
static inline bool is_ready(const struct ms_trace *trace, uint8_t device) MS_REQUIRES(ms_trace_role)
{
    return !trace->closed && trace->recorded - trace->packed < MS_TAIL_EVENTS &&
           is_known(trace, device);
}

/* Does what is_ready found missing, and seals a full window. Needs the lock, which it releases in
 * between. False: the trace is closed, or there is no memory. */
static RARE bool make_ready(struct ms_trace *trace, uint8_t device) MS_REQUIRES(ms_trace_role)
{
    const int saved = errno;
    bool made = false;

    while (!trace->closed && (device < MS_DEVICE_COUNT || device == NO_DEVICE)) {
        if (atomic_load_explicit(&trace->file.error, memory_order_relaxed)) {
            trace->closed = true;
        } else if (trace->recorded - trace->packed == MS_TAIL_EVENTS) {
            if (!trace->file.copied && !ms_guard_stands()) {
                ms_trace_release(trace);
                ms_trace_leave_mappings(trace);
                ms_trace_acquire(trace);
                continue;
            }
            ms_tail_pack(trace, true);
            if (atomic_load_explicit(&trace->digest.due, memory_order_relaxed)) {
                ms_trace_release(trace);
                ms_digest_step(trace);
                ms_trace_acquire(trace);
            }
        } else if (trace->retired.header) {
            ms_trace_release(trace);
            (void)ms_window_prepare(trace);
            ms_trace_acquire(trace);
        } else if (!is_known(trace, device) && !made) {
            ms_trace_release(trace);
            ms_device_make(trace, device);
            ms_trace_acquire(trace);
            made = true;
        } else {
            break;
        }
    }
    errno = saved;
    return is_ready(trace, device);
}

/* Called at a thread's first event. If the thread blocks the guard's signal, a fault in it would
 * end the process: then the windows become plain memory. */
static RARE void meet_thread(struct ms_trace *trace) MS_EXCLUDES(ms_trace_role)
{
    const int saved = errno;

    thread_is_met = true;
    if (!ms_guard_stands()) {
        ms_trace_leave_mappings(trace);
    }
    errno = saved;
}

/* Takes the lock if an event of the device can be recorded. */
static inline bool lock_device(struct ms_trace *trace, uint8_t device)
    MS_TRY_ACQUIRE(true, ms_trace_role)
{
    if (__builtin_expect(!thread_is_met, 0)) {
        meet_thread(trace);
    }
    ms_trace_acquire(trace);
    if (__builtin_expect(is_ready(trace, device), 1) || make_ready(trace, device)) {
        return true;
    }
    ms_trace_release(trace);
    return false;
}

/* Records an event in the tail. Once the count is stored, the event outlives the process. Needs the
 * lock. */
static inline void record(struct ms_trace *trace, const struct ms_event *event, uint64_t time_ns)
    MS_REQUIRES(ms_trace_role)
{
    struct ms_timed_event *timed = &trace->tail->events[trace->recorded % MS_TAIL_EVENTS];

    timed->time_ns = time_ns;
    timed->event = *event;
    trace->recorded++;
    atomic_store_explicit(&trace->header->events, trace->recorded, memory_order_release);
}

/* The same, and copies it to the file if windows are no mappings. */
static inline void record_in_file(struct ms_trace *trace, const struct ms_event *event,
                                  uint64_t time_ns) MS_REQUIRES(ms_trace_role)
{
    const struct ms_timed_event *timed = &trace->tail->events[trace->recorded % MS_TAIL_EVENTS];

    record(trace, event, time_ns);
    ms_trace_put(trace, timed, sizeof(*timed));
    ms_trace_put(trace, &trace->header->events, sizeof(trace->header->events));
}

/* Needs the lock. */
static RARE void note_threshold(struct ms_trace *trace, const struct ms_event *event)
    MS_REQUIRES(ms_trace_role)
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
        ms_trace_add(trace, &trace->header->lost_entries, 1);
    }
}

/* Kinds that need nothing but their record. */
#define PLAIN_KINDS                                                                              \
    (~(MS_EVENTS_OF_PROCESS | UINT64_C(1) << MS_EVENT_NONE | UINT64_C(1) << MS_EVENT_THRESHOLD | \
       ~UINT64_C(0) << MS_EVENT_KIND_COUNT))

static inline bool is_plain(const struct ms_event *event, uint8_t device)
{
    return event->kind < MS_EVENT_KIND_COUNT && (PLAIN_KINDS >> event->kind & 1) &&
           event->owner < MS_OWNER_COUNT && device < MS_DEVICE_COUNT;
}

/* For any event, in any state. */
static RARE void emit_any(struct ms_trace *trace, const struct ms_event *event)
    MS_EXCLUDES(ms_trace_role)
{
    if (event->kind == MS_EVENT_NONE || event->kind >= MS_EVENT_KIND_COUNT ||
        event->owner >= MS_OWNER_COUNT) {
        return;
    }

    const uint64_t ticks = ms_clock_ticks(); /* not under the lock: it takes a while */

    if (!lock_device(trace, ms_event_has_device(event) ? event->device : NO_DEVICE)) {
        return;
    }
    record_in_file(trace, event, ms_trace_time_at(trace, ticks));
    if (event->kind == MS_EVENT_THRESHOLD) {
        note_threshold(trace, event);
    }
    ms_trace_release(trace);
}

/* The lock was taken in vain: releases it. */
static RARE void release_and_emit(struct ms_trace *trace, const struct ms_event *event)
    MS_RELEASE(ms_trace_role)
{
    ms_trace_release(trace);
    emit_any(trace, event);
}

/* The fast path records nearly every event. It hands all others to a function that it calls last,
 * so it makes no calls in between and has no registers to save. */
__attribute__((hot)) void ms_trace_emit(ms_trace_t *trace, const struct ms_event *event)
{
    const uint64_t ticks = ms_clock_ticks();
    const uint8_t device = event->device; /* read once: the lock would have it read again */
    uint64_t time_ns;

    if (!is_plain(event, device) || !thread_is_met || !ms_trace_try(trace)) {
        emit_any(trace, event);
        return;
    }
    if (!is_ready(trace, device) || trace->file.copied ||
        !ms_trace_time_known(trace, ticks, &time_ns)) {
        release_and_emit(trace, event);
        return;
    }
    record(trace, event, time_ns);
    ms_trace_release(trace);
}

/* For the digest: notes when the out-of-memory came. Needs the lock. */
static void note_oom(struct ms_trace *trace, uint8_t device) MS_REQUIRES(ms_trace_role)
{
    struct ms_trace_digest *digest = &trace->digest;
    const uint32_t count = atomic_load_explicit(&digest->oom_count, memory_order_relaxed);

    if (count < MS_DIGEST_OOMS) {
        digest->ooms[count] = (struct ms_fold_oom){trace->recorded, device};
        atomic_store_explicit(&digest->oom_count, count + 1, memory_order_release);
    }
}

int64_t ms_trace_fragmentation_ppm(ms_trace_t *trace, uint8_t device)
{
    const int saved = errno;
    int64_t ppm = -1;

    if (lock_device(trace, device)) {
        ms_tail_pack(trace, true);
        ppm = trace->closed ? -1 : ms_aggregate_fragmentation_ppm(&trace->sums[device]);
        ms_trace_release(trace);
    }
    errno = saved;
    return ppm;
}

void ms_trace_oom(ms_trace_t *trace, uint8_t device, const struct ms_oom_state *state)
{
    const int saved = errno;

    for (int tries = 0; tries < 2; tries++) {
        if (!lock_device(trace, device)) {
            break;
        }
        ms_tail_pack(trace, true);
        if (trace->closed) {
            ms_trace_release(trace);
            break;
        }

        struct ms_aggregate *sums = &trace->sums[device];
        const struct ms_log_oom payload = {
            .state = *state,
            .counters = sums->now,
            .allocations = sums->allocations + sums->tensor_allocations,
            .peak_live = ms_aggregate_peak_live(sums),
        };
        const struct ms_log_entry entry = {
            .kind = MS_LOG_OOM,
            .bytes = sizeof(payload),
            .time_ns = ms_trace_time_ns(trace),
            .device = device,
        };
        const bool put = put_entry(trace, entry, &payload);

        if (put) {
            note_oom(trace, device);
        }
        if (put || tries > 0) {
            ms_aggregate_oom(sums, state->source == MS_OOM_TORCH);
            ms_sums_commit(trace, device, trace->packed);
            ms_trace_add(trace, &trace->header->lost_entries, put ? 0 : 1);
            ms_trace_release(trace);
            break;
        }
        ms_trace_release(trace);
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
        ms_trace_acquire(trace);

        struct ms_log_entry timed = entry;
        const bool wanted = !trace->closed && trace->note_bytes + entry.bytes <= MAX_NOTES_BYTES;
        bool put = false;

        if (wanted) {
            timed.time_ns = ms_trace_time_ns(trace);
            put = put_entry(trace, timed, text);
            trace->note_bytes += put ? entry.bytes : 0;
        }
        if (!trace->closed && !put && (!wanted || tries > 0)) {
            ms_trace_add(trace, &trace->header->lost_entries, 1);
        }
        ms_trace_release(trace);
        if (put || !wanted) {
            break;
        }
        (void)ms_log_next(trace);
    }
    errno = saved;
}

/* ---- entries written once ---- */

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

    if (lock_device(trace, device)) {
        struct ms_device_page *page = trace->pages[device];

        snprintf(page->name, sizeof(page->name), "%s", name ? name : "");
        if (uuid) {
            memcpy(page->uuid, uuid, sizeof(page->uuid));
            page->has_uuid = 1;
        }
        ms_trace_put(trace, page, offsetof(struct ms_device_page, current));
        ms_trace_release(trace);
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

    ms_trace_acquire(trace);
    for (int slot = 0; slot < MS_VERSION_COUNT && !trace->closed; slot++) {
        if (strcmp(names[slot], what) == 0) {
            snprintf(trace->header->versions[slot], MS_VERSION_BYTES, "%s", version);
            ms_trace_put(trace, trace->header->versions[slot], MS_VERSION_BYTES);
        }
    }
    ms_trace_release(trace);
}
