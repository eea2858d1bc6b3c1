#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "report/events.h"
#include "report/reader.h"
#include "report/recording.h"

#define NS_PER_US 1000u

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

struct taking {
    struct ms_recording *recording;
    unsigned device;
};

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
    const struct taking *taking = ctx;
    struct ms_recording *recording = taking->recording;
    const uint64_t time_us = time_ns / NS_PER_US;
    struct ms_complaint complaint;

    if (event->kind != MS_EVENT_STEP && event->device != taking->device) {
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
    case MS_EVENT_TENSOR_BORN:
        complaint = ms_recording_born(recording, time_us, event->id, event->addr, event->bytes,
                                      event->site, event->aux);
        break;
    case MS_EVENT_TENSOR_DIED:
        complaint = ms_recording_died(recording, time_us, event->id);
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

static bool read_events(struct source *source, struct ms_recording *recording, int device,
                        char *why, size_t why_bytes)
{
    struct taking taking = {.recording = recording};
    const struct ms_events_visitor count = {.ctx = source, .event = count_event};
    const struct ms_events_visitor take = {.ctx = &taking, .event = take_event};

    if (!ms_events_walk(&source->reader, &count, &recording->damaged_windows)) {
        return no_memory(source, why, why_bytes);
    }
    taking.device = device < 0 ? busiest(source) : (unsigned)device;
    if (source->events[taking.device] == 0) {
        (void)snprintf(why, why_bytes, "%s: it has no event of device %u", source->reader.path,
                       taking.device);
        return false;
    }
    recording->device = taking.device;
    recording->recycled_events = source->reader.header.recycled_events;
    return (ms_events_walk(&source->reader, &take, &recording->damaged_windows) &&
            ms_recording_end(recording)) ||
           no_memory(source, why, why_bytes);
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
