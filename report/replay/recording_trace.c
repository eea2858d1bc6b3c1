/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a trace into a recording. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "report/read/events.h"
#include "report/read/reader.h"
#include "report/replay/recorder.h"
#include "report/replay/recording.h"

struct trace_source {
    struct ms_reader reader;
    uint64_t events[MS_DEVICE_COUNT];
};

static void count_event(void *ctx, const struct ms_event *event, uint64_t time_ns)
{
    struct trace_source *source = ctx;

    (void)time_ns;
    source->events[event->device & (MS_DEVICE_COUNT - 1)] += ms_event_has_device(event);
}

static unsigned busiest(const struct trace_source *source)
{
    unsigned device = 0;

    for (unsigned i = 1; i < MS_DEVICE_COUNT; i++) {
        device = source->events[i] > source->events[device] ? i : device;
    }
    return device;
}

static void record_event(void *ctx, const struct ms_event *event, uint64_t time_ns)
{
    ms_recorder_event(ctx, event, time_ns);
}

/* False: memory ran out. */
static bool record(struct trace_source *source, struct ms_recording *recording)
{
    struct ms_recorder *recorder = ms_recorder_new(recording);
    const struct ms_events_visitor record_all = {.ctx = recorder, .event = record_event};
    uint64_t damaged_windows;
    bool recorded = false;

    if (recorder) {
        ms_recorder_log(recorder, &source->reader);
        recorded = ms_events_walk(&source->reader, &record_all, &damaged_windows) &&
                   ms_recorder_end(recorder, &source->reader.header);
    }
    if (recorded) {
        recording->damaged_windows += damaged_windows;
    }
    ms_recorder_delete(recorder);
    return recorded;
}

/* Reads the events once to find it. False: memory ran out. */
static bool find_busiest(struct trace_source *source, unsigned *device)
{
    const struct ms_events_visitor count = {.ctx = source, .event = count_event};
    uint64_t damaged_windows;
    const bool read = ms_events_walk(&source->reader, &count, &damaged_windows);

    *device = busiest(source);
    return read;
}

static bool read_events(struct trace_source *source, struct ms_recording *recording, int device,
                        char *why, size_t why_bytes)
{
    recording->device = (unsigned)device;
    if ((device < 0 && !find_busiest(source, &recording->device)) || !record(source, recording)) {
        (void)snprintf(why, why_bytes, "%s: no memory to read it", source->reader.path);
        return false;
    }
    if (recording->events == 0) {
        (void)snprintf(why, why_bytes, "%s: it has no event of device %u%s", source->reader.path,
                       recording->device,
                       recording->damaged_windows > 0 ? " that could be read: it is damaged" : "");
    }
    return recording->events > 0;
}

bool ms_recording_read_trace(struct ms_recording *recording, const char *path, int device,
                             char *why, size_t why_bytes)
{
    struct trace_source *source = calloc(1, sizeof(*source));
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
