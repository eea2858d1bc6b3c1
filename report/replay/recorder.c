/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a recording event by event, and finds the out-of-memory that ended the run. */
#include "report/replay/recorder.h"

#include <stdlib.h>
#include <string.h>

#include "allocator/base/clock.h"
#include "allocator/base/containers/numbers.h"
#include "report/read/log_entries.h"

#define TAKEN_OUT MS_OPERATION_KIND_COUNT /* of a removed operation, until the gaps are closed */

/* An out-of-memory. */
struct refusal {
    uint64_t time_ns;
    uint64_t requested_bytes;
    uint64_t called_bytes; /* of the driver's call: the same, or the size in which PyTorch would
                              place it */
    uint32_t site;
    bool torch;           /* PyTorch's own error, for the whole request that the driver refused */
    uint64_t allocations; /* number before it */
    bool met;             /* as much was allocated later */
};

struct ms_recorder {
    struct ms_recording *recording;
    struct ms_buffer refusals; /* struct refusal, for the device, in order */
    size_t next_refusal;
    bool begun;             /* an event was seen */
    uint64_t allocations;   /* number so far */
    uint64_t smallest_open; /* the smallest of the refusals not met yet; UINT64_MAX: none */
};

/* ---- out-of-memories ---- */

static struct refusal *refusal_at(const struct ms_recorder *recorder, size_t index)
{
    return (struct refusal *)recorder->refusals.at + index;
}

static struct ms_operation *operation_at(const struct ms_recorder *recorder, size_t index)
{
    return (struct ms_operation *)recorder->recording->operations.at + index;
}

/* A pool could not have served host memory. */
static void add_refusal(struct ms_recorder *recorder, const struct ms_log_entry *entry,
                        const char *payload)
{
    struct ms_oom_state state = {0};
    struct refusal *refusal;

    memcpy(&state, payload + offsetof(struct ms_log_oom, state),
           (size_t)ms_log_oom_state_bytes(entry->bytes));
    refusal = state.source == MS_OOM_HOST ? NULL
                                          : ms_buffer_extend(&recorder->refusals, sizeof(*refusal));
    if (refusal) {
        *refusal = (struct refusal){.time_ns = entry->time_ns,
                                    .requested_bytes = state.requested_bytes,
                                    .called_bytes = state.refused_bytes > 0 ? state.refused_bytes
                                                                            : state.requested_bytes,
                                    .site = state.site,
                                    .torch = state.source == MS_OOM_TORCH};
    }
}

void ms_recorder_log(struct ms_recorder *recorder, struct ms_reader *reader)
{
    for (size_t i = 0; i < ms_reader_count(&reader->logs); i++) {
        struct ms_extent_place *place = ms_reader_place(&reader->logs, i);
        struct ms_log_entries entries = {.left_bytes = 1};

        if (ms_reader_load(reader, place)) {
            struct ms_log_entry entry;
            const char *payload;

            entries = ms_log_entries_begin(reader, place);
            while (ms_log_entries_next(&entries, &entry, &payload)) {
                if (entry.kind == MS_LOG_OOM &&
                    (entry.device & (MS_DEVICE_COUNT - 1)) == recorder->recording->device) {
                    add_refusal(recorder, &entry, payload);
                }
            }
        }
        recorder->recording->damaged_windows += entries.left_bytes > 0;
    }
}

/* Drops refusals from before the first known event: the memory held then is unknown. */
static void drop_refusals(struct ms_recorder *recorder, uint64_t first_ns)
{
    const size_t count = recorder->refusals.bytes / sizeof(struct refusal);
    size_t kept = 0;

    for (size_t i = 0; i < count; i++) {
        if (refusal_at(recorder, i)->time_ns >= first_ns) {
            *refusal_at(recorder, kept++) = *refusal_at(recorder, i);
        }
    }
    recorder->refusals.bytes = kept * sizeof(struct refusal);
    recorder->begun = true;
}

/* Takes refusals from before the time; events of the same time count as before them. Until they are
 * settled, `object` is their index. */
static void take_refusals(struct ms_recorder *recorder, uint64_t time_ns)
{
    const size_t count = recorder->refusals.bytes / sizeof(struct refusal);

    for (; recorder->next_refusal < count; recorder->next_refusal++) {
        struct refusal *refusal = refusal_at(recorder, recorder->next_refusal);
        const uint64_t bytes = refusal->called_bytes > refusal->requested_bytes
                                   ? refusal->called_bytes
                                   : refusal->requested_bytes;
        struct ms_complaint complaint;

        if (refusal->time_ns >= time_ns) {
            return;
        }
        complaint = ms_recording_refused(
            recorder->recording, refusal->time_ns / MS_NS_PER_US, MS_OPERATION_REFUSED,
            bytes < MS_RECORDED_MOST_BYTES ? bytes : MS_RECORDED_MOST_BYTES, 0, refusal->site);
        recorder->recording->left_out += complaint.field != NULL;
        if (!complaint.field) {
            const size_t last = ms_recording_count(recorder->recording) - 1;

            operation_at(recorder, last)->object = (uint32_t)recorder->next_refusal;
        }
        refusal->allocations = recorder->allocations;
        if (refusal->requested_bytes < recorder->smallest_open) {
            recorder->smallest_open = refusal->requested_bytes;
        }
    }
}

/* An allocation succeeded: marks refused requests of at most that size as met. */
static void note_allocation(struct ms_recorder *recorder, uint64_t bytes)
{
    recorder->allocations++;
    if (bytes < recorder->smallest_open) {
        return;
    }
    recorder->smallest_open = UINT64_MAX;
    for (size_t i = 0; i < recorder->next_refusal; i++) {
        struct refusal *refusal = refusal_at(recorder, i);

        refusal->met |= refusal->requested_bytes <= bytes;
        if (!refusal->met && refusal->requested_bytes < recorder->smallest_open) {
            recorder->smallest_open = refusal->requested_bytes;
        }
    }
}

/* Whether the later one repeats the request: no allocation came in between, and it asks for as
 * much, or it is PyTorch's error after the driver refused a page of that request. */
static bool asked_again(const struct refusal *refusal, const struct refusal *later)
{
    return later->allocations == refusal->allocations &&
           (later->called_bytes == refusal->called_bytes || (later->torch && !refusal->torch));
}

/* Marks repeated requests, and finds the one that ended the run. */
static void settle_refusals(struct ms_recorder *recorder, bool ended_well)
{
    const struct refusal *next = NULL;
    bool found = ended_well;

    for (size_t i = ms_recording_count(recorder->recording); i-- > 0;) {
        struct ms_operation *operation = operation_at(recorder, i);

        if (operation->kind == MS_OPERATION_REFUSED) {
            const struct refusal *refusal = refusal_at(recorder, operation->object);
            const bool recovered =
                refusal->met ||
                recorder->allocations > refusal->allocations + MS_WENT_ON_ALLOCATIONS;

            if (next && asked_again(refusal, next)) {
                operation->kind = TAKEN_OUT;
            } else if (!found && !recovered) {
                operation->kind = MS_OPERATION_FATAL;
                found = true;
            }
            operation->object = 0;
            next = refusal;
        }
    }
}

static void close_gaps(struct ms_recorder *recorder)
{
    const size_t count = ms_recording_count(recorder->recording);
    size_t kept = 0;

    for (size_t i = 0; i < count; i++) {
        if (operation_at(recorder, i)->kind != TAKEN_OUT) {
            *operation_at(recorder, kept++) = *operation_at(recorder, i);
        }
    }
    recorder->recording->operations.bytes = kept * sizeof(struct ms_operation);
}

/* ---- events ---- */

/* Handles other events. The pool's own chunks are ignored; the program's own are charged, like the
 * driver's memory. A charge that is also recorded as a block does not count again. */
static struct ms_complaint take_other(struct ms_recording *recording, const struct ms_event *event,
                                      uint64_t time_us)
{
    const bool ours = event->owner == MS_OWNER_POOL;
    const bool host = event->aux == MS_LOCATION_HOST;

    switch (event->kind) {
    case MS_EVENT_CHUNK_CREATE:
        if (!ours && !host) {
            return ms_recording_charge(recording, time_us, MS_OPERATION_CHARGE, event->bytes);
        }
        break;
    case MS_EVENT_CHUNK_RELEASE:
        if (!ours && !host) {
            return ms_recording_charge(recording, time_us, MS_OPERATION_DISCHARGE, event->bytes);
        }
        break;
    case MS_EVENT_CHARGE:
        if (!ms_charge_is_block(event->aux)) {
            return ms_recording_charge(recording, time_us, MS_OPERATION_CHARGE, event->bytes);
        }
        break;
    case MS_EVENT_DISCHARGE:
        if (!ms_charge_is_block(event->aux)) {
            return ms_recording_charge(recording, time_us, MS_OPERATION_DISCHARGE, event->bytes);
        }
        break;
    case MS_EVENT_CAP:
        if (recording->cap_bytes == 0) {
            recording->cap_bytes = event->bytes;
            recording->device_bytes = event->aux;
        }
        break;
    default:
        break;
    }
    return (struct ms_complaint){NULL, NULL};
}

static struct ms_complaint take_range(struct ms_recording *recording, const struct ms_event *event,
                                      uint64_t time_us)
{
    if (event->owner == MS_OWNER_POOL) {
        return (struct ms_complaint){NULL, NULL};
    }
    if (event->kind == MS_EVENT_RANGE_RESERVE) {
        return ms_recording_reserve(recording, time_us, event->addr, event->addr, event->bytes);
    }
    return ms_recording_unreserve(recording, time_us, event->addr);
}

/* Whether it is a range that the program mapped itself, whose chunks are charged, or memory of
 * another process. No pool serves either. */
static bool is_mapped(const struct ms_recording *recording, const struct ms_event *event)
{
    switch (event->kind) {
    case MS_EVENT_BLOCK_ALLOC:
        return event->owner == MS_OWNER_APPLICATION ||
               (event->owner == MS_OWNER_FORWARDED && event->aux == 0);
    case MS_EVENT_BLOCK_FREE:
        return event->owner != MS_OWNER_POOL &&
               ms_numbers_get(recording->live, event->id) == MS_NUMBER_NONE;
    default:
        return false;
    }
}

void ms_recorder_event(struct ms_recorder *recorder, const struct ms_event *event, uint64_t time_ns)
{
    struct ms_recording *recording = recorder->recording;
    const uint64_t time_us = time_ns / MS_NS_PER_US;
    struct ms_complaint complaint;

    if (!recorder->begun) {
        drop_refusals(recorder, time_ns);
    }
    if (event->kind != MS_EVENT_STEP && event->device != recorder->recording->device) {
        return;
    }
    recording->events += ms_event_has_device(event);
    if (ms_recording_is_part(recording)) {
        return;
    }
    take_refusals(recorder, time_ns);
    if (ms_event_is_allocation(event)) {
        note_allocation(recorder, event->bytes);
    }
    if (is_mapped(recording, event)) {
        return;
    }
    switch (event->kind) {
    case MS_EVENT_BLOCK_ALLOC:
        complaint = ms_recording_alloc(recording, time_us, event->id, event->addr, event->bytes,
                                       event->stream, event->site, false);
        break;
    case MS_EVENT_BLOCK_FREE:
        complaint = ms_recording_release(recording, time_us, event->id, event->stream);
        break;
    case MS_EVENT_TENSOR_ALLOC:
        complaint = ms_recording_allocated(recording, time_us, event->id, event->addr, event->bytes,
                                           event->site, event->aux);
        break;
    case MS_EVENT_TENSOR_FREE:
        complaint = ms_recording_freed(recording, time_us, event->id);
        break;
    case MS_EVENT_PROXY_MAP:
        complaint = ms_recording_map(recording, time_us, event->aux, event->addr, event->bytes);
        break;
    case MS_EVENT_PROXY_UNMAP:
        complaint = ms_recording_unmap(recording, time_us, event->addr, event->bytes);
        break;
    case MS_EVENT_ARENA_FROZEN:
        complaint = ms_recording_freeze(recording, time_us, event->addr);
        break;
    case MS_EVENT_STEP: /* of the process, and so of each device */
        complaint = ms_recording_step(recording, time_us);
        break;
    case MS_EVENT_RANGE_RESERVE:
    case MS_EVENT_RANGE_FREE:
        complaint = take_range(recording, event, time_us);
        break;
    default:
        complaint = take_other(recording, event, time_us);
        break;
    }
    recording->left_out += complaint.field != NULL;
}

static bool ended_well(const struct ms_file_header *header)
{
    return header->state != MS_TRACE_OPEN && header->exit_known && header->exit_status == 0;
}

struct ms_recorder *ms_recorder_new(struct ms_recording *recording)
{
    struct ms_recorder *recorder = calloc(1, sizeof(*recorder));

    if (recorder) {
        recorder->recording = recording;
        recorder->smallest_open = UINT64_MAX;
    }
    return recorder;
}

void ms_recorder_delete(struct ms_recorder *recorder)
{
    if (recorder) {
        ms_buffer_free(&recorder->refusals);
        free(recorder);
    }
}

bool ms_recorder_end(struct ms_recorder *recorder, const struct ms_file_header *header)
{
    const bool cut = ms_recording_is_part(recorder->recording);

    if (!cut) {
        take_refusals(recorder, UINT64_MAX);
    }
    settle_refusals(recorder, cut || ended_well(header));
    close_gaps(recorder);
    recorder->recording->recycled_events = header->recycled_events;
    return !recorder->refusals.failed && ms_recording_end(recorder->recording);
}
