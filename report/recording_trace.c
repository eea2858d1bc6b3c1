#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "report/encoding.h"
#include "report/reader.h"
#include "report/recording.h"

#define NS_PER_US 1000u

struct source {
    struct ms_reader reader;
    struct ms_codec codec;
    uint64_t events[MS_DEVICE_COUNT];
    uint64_t damaged_windows;
};

/* Hands every event that can be read to `each`, in order. */
static void for_each_event(struct source *source,
                           void (*each)(void *ctx, const struct ms_event *event, uint64_t time_ns),
                           void *ctx)
{
    struct ms_reader *reader = &source->reader;
    uint64_t next_event = 0;

    source->damaged_windows = 0;
    for (size_t i = 0; i < ms_reader_count(&reader->windows); i++) {
        struct ms_extent_place *place = ms_reader_place(&reader->windows, i);
        const struct ms_extent_header *header = (const struct ms_extent_header *)reader->extent;
        struct ms_event event;
        uint64_t time_ns, left;
        size_t bytes = 1;

        if (!ms_reader_load(reader, place)) {
            source->damaged_windows++;
            continue;
        }
        ms_codec_reset(&source->codec, header->start_time_ns);
        for (left = place->committed_bytes; left > 0 && bytes > 0; left -= bytes) {
            const uint8_t *at = (const uint8_t *)reader->extent + header->payload_offset +
                                (place->committed_bytes - left);

            bytes = ms_decode(&source->codec, at, left, &event, &time_ns);
            if (bytes > 0) {
                each(ctx, &event, time_ns);
            }
        }
        source->damaged_windows += left > 0;
        next_event = header->first_event + place->count;
    }
    next_event = next_event < reader->tail_first ? reader->tail_first : next_event;
    for (; next_event < reader->tail_end; next_event++) {
        const struct ms_timed_event *timed = ms_reader_tail(reader, next_event);

        if (!timed) {
            source->damaged_windows++;
            break;
        }
        each(ctx, &timed->event, timed->time_ns);
    }
}

static void count_event(void *ctx, const struct ms_event *event, uint64_t time_ns)
{
    struct source *source = ctx;

    (void)time_ns;
    source->events[event->device & (MS_DEVICE_COUNT - 1)]++;
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

    if (event->device != taking->device) {
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

static bool read_events(struct source *source, struct ms_recording *recording, int device,
                        char *why, size_t why_bytes)
{
    struct taking taking = {.recording = recording};

    for_each_event(source, count_event, source);
    taking.device = device < 0 ? busiest(source) : (unsigned)device;
    if (source->events[taking.device] == 0) {
        (void)snprintf(why, why_bytes, "%s: it has no event of device %u", source->reader.path,
                       taking.device);
        return false;
    }
    for_each_event(source, take_event, &taking);
    recording->device = taking.device;
    recording->damaged_windows = source->damaged_windows;
    recording->recycled_events = source->reader.header.recycled_events;
    if (!ms_recording_end(recording)) {
        (void)snprintf(why, why_bytes, "%s: no memory to read it", source->reader.path);
        return false;
    }
    return true;
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
