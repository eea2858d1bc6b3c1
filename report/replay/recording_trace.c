/* SPDX-License-Identifier: Apache-2.0 */
/* A recording made of a trace: its events, and the out-of-memories of its log. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "report/read/events.h"
#include "report/read/log_entries.h"
#include "report/read/reader.h"
#include "report/replay/recording.h"

#define NS_PER_US 1000u
#define TAKEN_OUT MS_OPERATION_KIND_COUNT /* of an operation, until the gaps are closed */

struct source {
    struct ms_reader reader;
    uint64_t events[MS_DEVICE_COUNT];
};

static void count_event(void *ctx, const struct ms_event *event, uint64_t time_ns)
{
    struct source *source = ctx;

    (void)time_ns;
    source->events[event->device & (MS_DEVICE_COUNT - 1)] += ms_event_has_device(event);
}

/* An out-of-memory. */
struct refusal {
    uint64_t time_ns;
    uint64_t requested_bytes;
    uint64_t called_bytes; /* of the driver's call: the same, or what PyTorch would put it in */
    uint32_t site;
    uint64_t allocations; /* before it */
    bool met;             /* as much was allocated later */
};

struct taking {
    struct ms_recording *recording;
    unsigned device;
    struct ms_buffer refusals; /* struct refusal, of the device, in order */
    size_t next_refusal;
    bool begun;             /* an event was seen */
    uint64_t events;        /* of the device */
    uint64_t allocations;   /* so far */
    uint64_t smallest_open; /* of the refusals so far that are not met; UINT64_MAX: none is open */
    uint64_t damaged_logs;
};

/* ---- out-of-memories ---- */

static struct refusal *refusal_at(const struct taking *taking, size_t index)
{
    return (struct refusal *)taking->refusals.at + index;
}

static struct ms_operation *operation_at(const struct taking *taking, size_t index)
{
    return (struct ms_operation *)taking->recording->operations.at + index;
}

static void add_refusal(struct taking *taking, const struct ms_log_entry *entry,
                        const char *payload)
{
    struct refusal *refusal = ms_buffer_extend(&taking->refusals, sizeof(*refusal));
    struct ms_oom_state state;

    if (refusal) {
        memcpy(&state, payload + offsetof(struct ms_log_oom, state), sizeof(state));
        *refusal = (struct refusal){.time_ns = entry->time_ns,
                                    .requested_bytes = state.requested_bytes,
                                    .called_bytes = state.refused_bytes > 0 ? state.refused_bytes
                                                                            : state.requested_bytes,
                                    .site = state.site};
    }
}

static void read_refusals(struct taking *taking, struct source *source)
{
    struct ms_reader *reader = &source->reader;

    for (size_t i = 0; i < ms_reader_count(&reader->logs); i++) {
        struct ms_extent_place *place = ms_reader_place(&reader->logs, i);
        struct ms_log_entries entries = {.left_bytes = 1};

        if (ms_reader_load(reader, place)) {
            struct ms_log_entry entry;
            const char *payload;

            entries = ms_log_entries_begin(reader, place);
            while (ms_log_entries_next(&entries, &entry, &payload)) {
                if (entry.kind == MS_LOG_OOM &&
                    (entry.device & (MS_DEVICE_COUNT - 1)) == taking->device) {
                    add_refusal(taking, &entry, payload);
                }
            }
        }
        taking->damaged_logs += entries.left_bytes > 0;
    }
}

/* What came before the first event that there is was refused beside what nobody knows of. */
static void drop_refusals(struct taking *taking, uint64_t first_ns)
{
    const size_t count = taking->refusals.bytes / sizeof(struct refusal);
    size_t kept = 0;

    for (size_t i = 0; i < count; i++) {
        if (refusal_at(taking, i)->time_ns >= first_ns) {
            *refusal_at(taking, kept++) = *refusal_at(taking, i);
        }
    }
    taking->refusals.bytes = kept * sizeof(struct refusal);
    taking->begun = true;
}

/* Those from before the time; what happened at the same time was before them. Until they are
 * settled, `object` is their index. */
static void take_refusals(struct taking *taking, uint64_t time_ns)
{
    const size_t count = taking->refusals.bytes / sizeof(struct refusal);

    for (; taking->next_refusal < count; taking->next_refusal++) {
        struct refusal *refusal = refusal_at(taking, taking->next_refusal);
        const uint64_t bytes = refusal->called_bytes > refusal->requested_bytes
                                   ? refusal->called_bytes
                                   : refusal->requested_bytes;
        struct ms_complaint complaint;

        if (refusal->time_ns >= time_ns) {
            return;
        }
        complaint = ms_recording_refused(
            taking->recording, refusal->time_ns / NS_PER_US, MS_OPERATION_REFUSED,
            bytes < MS_RECORDED_MOST_BYTES ? bytes : MS_RECORDED_MOST_BYTES, 0, refusal->site);
        taking->recording->left_out += complaint.field != NULL;
        if (!complaint.field) {
            const size_t last = ms_recording_count(taking->recording) - 1;

            operation_at(taking, last)->object = (uint32_t)taking->next_refusal;
        }
        refusal->allocations = taking->allocations;
        if (refusal->requested_bytes < taking->smallest_open) {
            taking->smallest_open = refusal->requested_bytes;
        }
    }
}

/* The requests that were refused with no more than that have been got over. */
static void note_allocation(struct taking *taking, uint64_t bytes)
{
    taking->allocations++;
    if (bytes < taking->smallest_open) {
        return;
    }
    taking->smallest_open = UINT64_MAX;
    for (size_t i = 0; i < taking->next_refusal; i++) {
        struct refusal *refusal = refusal_at(taking, i);

        refusal->met |= refusal->requested_bytes <= bytes;
        if (!refusal->met && refusal->requested_bytes < taking->smallest_open) {
            taking->smallest_open = refusal->requested_bytes;
        }
    }
}

/* Marks what was asked for again, with no allocation in between, and finds the one that the run
 * ended of. */
static void settle_refusals(struct taking *taking, bool ended_well)
{
    const struct refusal *next = NULL;
    bool found = ended_well;

    for (size_t i = ms_recording_count(taking->recording); i-- > 0;) {
        struct ms_operation *operation = operation_at(taking, i);

        if (operation->kind == MS_OPERATION_REFUSED) {
            const struct refusal *refusal = refusal_at(taking, operation->object);
            const bool recovered =
                refusal->met || taking->allocations > refusal->allocations + MS_WENT_ON_ALLOCATIONS;

            if (next && next->called_bytes == refusal->called_bytes &&
                next->allocations == refusal->allocations) {
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

static void close_gaps(struct taking *taking)
{
    const size_t count = ms_recording_count(taking->recording);
    size_t kept = 0;

    for (size_t i = 0; i < count; i++) {
        if (operation_at(taking, i)->kind != TAKEN_OUT) {
            *operation_at(taking, kept++) = *operation_at(taking, i);
        }
    }
    taking->recording->operations.bytes = kept * sizeof(struct ms_operation);
}

/* ---- events ---- */

/* Chunks of the pool are its own doing; those of the program's own are charged like what the driver
 * took. */
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
        return ms_recording_charge(recording, time_us, MS_OPERATION_CHARGE, event->bytes);
    case MS_EVENT_DISCHARGE:
        return ms_recording_charge(recording, time_us, MS_OPERATION_DISCHARGE, event->bytes);
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

static void take_event(void *ctx, const struct ms_event *event, uint64_t time_ns)
{
    struct taking *taking = ctx;
    struct ms_recording *recording = taking->recording;
    const uint64_t time_us = time_ns / NS_PER_US;
    struct ms_complaint complaint;

    if (!taking->begun) {
        drop_refusals(taking, time_ns);
    }
    if (event->kind != MS_EVENT_STEP && event->device != taking->device) {
        return;
    }
    taking->events += ms_event_has_device(event);
    take_refusals(taking, time_ns);
    if (ms_event_is_allocation(event)) {
        note_allocation(taking, event->bytes);
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
    case MS_EVENT_STEP: /* the process's, and so each device's */
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

static unsigned busiest(const struct source *source)
{
    unsigned device = 0;

    for (unsigned i = 1; i < MS_DEVICE_COUNT; i++) {
        device = source->events[i] > source->events[device] ? i : device;
    }
    return device;
}

static bool no_memory(const struct source *source, char *why, size_t why_bytes)
{
    (void)snprintf(why, why_bytes, "%s: no memory to read it", source->reader.path);
    return false;
}

static bool ended_well(const struct ms_file_header *header)
{
    return header->state == MS_TRACE_CLOSED && header->exit_known && header->exit_status == 0;
}

/* False where memory ran out. */
static bool take_all(struct source *source, struct taking *taking)
{
    const struct ms_events_visitor take = {.ctx = taking, .event = take_event};
    bool taken = ms_events_walk(&source->reader, &take, &taking->recording->damaged_windows);

    if (taken) {
        take_refusals(taking, UINT64_MAX);
        settle_refusals(taking, ended_well(&source->reader.header));
        close_gaps(taking);
        taken = !taking->refusals.failed && ms_recording_end(taking->recording);
    }
    return taken;
}

/* Reads the events once for that. False where memory ran out. */
static bool find_busiest(struct source *source, unsigned *device)
{
    const struct ms_events_visitor count = {.ctx = source, .event = count_event};
    uint64_t damaged_windows;
    const bool read = ms_events_walk(&source->reader, &count, &damaged_windows);

    *device = busiest(source);
    return read;
}

static bool read_events(struct source *source, struct ms_recording *recording, int device,
                        char *why, size_t why_bytes)
{
    struct taking taking = {
        .recording = recording, .device = (unsigned)device, .smallest_open = UINT64_MAX};
    bool read;

    if (device < 0 && !find_busiest(source, &taking.device)) {
        return no_memory(source, why, why_bytes);
    }
    recording->device = taking.device;
    recording->recycled_events = source->reader.header.recycled_events;
    read_refusals(&taking, source);
    read = take_all(source, &taking);
    ms_buffer_free(&taking.refusals);
    recording->damaged_windows += taking.damaged_logs;
    if (!read) {
        return no_memory(source, why, why_bytes);
    }
    if (taking.events == 0) {
        (void)snprintf(why, why_bytes, "%s: it has no event of device %u", source->reader.path,
                       taking.device);
    }
    return taking.events > 0;
}

bool ms_recording_read_trace(struct ms_recording *recording, const char *path, int device,
                             char *why, size_t why_bytes)
{
    struct source *source = calloc(1, sizeof(*source));
    struct stat status;
    char file[PATH_MAX];
    const bool folder = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
    const int length = snprintf(file, sizeof(file), "%s%s", path, folder ? "/" MS_TRACE_FILE : "");
    bool read = false;

    if (!source) {
        (void)snprintf(why, why_bytes, "%s: no memory to read it", path);
    } else if (length >= (int)sizeof(file)) {
        (void)snprintf(why, why_bytes, "%s: the path is too long", path);
    } else if (ms_reader_open(&source->reader, file, why, why_bytes)) {
        read = read_events(source, recording, device, why, why_bytes);
        ms_reader_close(&source->reader);
    }
    free(source);
    return read;
}
