/* SPDX-License-Identifier: Apache-2.0 */
/* Reads one process from the pages of its trace: the sums that its writer keeps, and the newest
 * events, which these sums do not contain yet. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/clock.h"
#include "allocator/base/containers/pages.h"
#include "report/read/reader.h"
#include "shim/cli/top/top.h"

const char *ms_top_state_name(enum ms_top_state state)
{
    static const char *const names[] = {"running", "ended", "exited", "killed", "unknown"};
    return names[state];
}

static void stats_of(const struct ms_aggregate *sums, struct memshim_stats *out)
{
    const struct ms_counters *now = &sums->now;
    const int64_t ppm = ms_aggregate_fragmentation_ppm(sums);
    *out = (struct memshim_stats){
        .size = sizeof(*out),
        .total_bytes = now->total_bytes,
        .cap_bytes = now->cap_bytes,
        .used_bytes = ms_counters_charged(now),
        .peak_used_bytes = sums->peak_charged.charged_bytes,
        .live_bytes = ms_counters_live(now),
        .reserved_bytes = ms_counters_reserved(now),
        .host_bytes = now->host_chunk_bytes,
        .spilled_bytes = sums->spilled_bytes,
        .promoted_bytes = sums->promoted_bytes,
        .spill_wait_ns = sums->held_ns,
        .refusals = sums->failed_allocations,
        .status = now->threshold,
        .fragmentation = ppm > 0 ? (double)ppm / 1e6 : 0,
    };
    ms_stats_derive(out, out->cap_bytes);
}

/* If nothing happened in a part, its value is that at the end of the part before. */
static void set_trend(struct ms_top_device *device, const struct ms_series_pair *pair)
{
    const struct ms_series *series = &pair->copy[pair->current & 1];
    uint64_t standing = 0;
    for (uint32_t part = 0; part < MS_TOP_TREND; part++) {
        const uint32_t end = (uint32_t)((uint64_t)series->used * (part + 1) / MS_TOP_TREND);
        uint64_t most = standing;
        for (uint32_t i = (uint32_t)((uint64_t)series->used * part / MS_TOP_TREND); i < end; i++) {
            const struct ms_bucket *bucket = &series->buckets[i];
            if (bucket->samples > 0) {
                most =
                    bucket->max_bytes[MS_LINE_LIVE] > most ? bucket->max_bytes[MS_LINE_LIVE] : most;
                standing = bucket->last_bytes[MS_LINE_LIVE];
            }
        }
        device->trend_bytes[part] = most;
    }
    device->has_trend = series->used > 0;
}

/* The tail was read before the sums, so its events that the sums do not contain are added. */
static bool read_device(struct ms_reader *reader, struct ms_extent_place *place,
                        struct ms_top_process *out)
{
    struct ms_device_sums read;
    if (!ms_reader_load(reader, place)) {
        return false;
    }
    const struct ms_extent_header *header = (const struct ms_extent_header *)reader->extent;
    /* A copy of the file's page. */
    struct ms_device_page *page =
        (struct ms_device_page *)(reader->extent + header->payload_offset);
    if (header->payload_offset + sizeof(*page) > MS_EXTENT_BYTES ||
        page->device >= MS_DEVICE_COUNT) {
        return false;
    }
    struct ms_top_device *device = ms_buffer_extend(&out->devices, sizeof(*device));
    if (device == NULL) {
        return false;
    }
    device->index = (uint8_t)page->device;
    memcpy(device->name, page->name, sizeof(device->name) - 1);
    if (page->has_uuid != 0) {
        (void)ms_uuid_text(page->uuid, device->uuid);
    }
    const bool has_series = ms_series_is_valid(&page->series.copy[page->series.current & 1]);
    out->torn |= !ms_reader_sums(reader, place, &read);
    for (uint64_t i = reader->tail_first; i < reader->tail_end; i++) {
        const struct ms_timed_event *timed = ms_reader_tail(reader, i);
        if (i >= read.end_event && timed != NULL && ms_event_has_device(&timed->event) &&
            timed->event.device == device->index) {
            ms_aggregate_apply(&read.sums, &timed->event, timed->time_ns);
            if (has_series) {
                const struct ms_moment moment = ms_aggregate_moment(&read.sums, timed->time_ns);
                ms_series_note(&page->series, &moment);
            }
        }
    }
    stats_of(&read.sums, &device->stats);
    if (has_series) {
        set_trend(device, &page->series);
    }
    if (read.sums.last_time_ns > out->duration_ns) {
        out->duration_ns = read.sums.last_time_ns;
    }
    return true;
}

static int by_index(const void *a, const void *b)
{
    const struct ms_top_device *left = a, *right = b;
    return (int)left->index - (int)right->index;
}

/* A lock can be seen only on the same machine. */
static bool is_here(const char *host)
{
    char here[MS_HOST_BYTES] = "";
    (void)gethostname(here, sizeof(here) - 1);
    return strcmp(here, host) == 0;
}

/* duration_ns is the time of the last event so far. */
static void set_state(const struct ms_reader *reader, struct ms_top_process *out)
{
    const struct ms_file_header *header = &reader->header;
    const uint64_t now = ms_clock_unix_ns();
    if (header->state == MS_TRACE_CLOSED) {
        out->state = MS_TOP_ENDED;
        out->exit_known = header->exit_known != 0;
        out->duration_ns = header->end_time_ns;
    } else if (reader->running) {
        out->state = MS_TOP_RUNNING;
        if (now > header->start_unix_ns && now - header->start_unix_ns > out->duration_ns) {
            out->duration_ns = now - header->start_unix_ns;
        }
    } else if (header->state == MS_TRACE_LEFT) {
        out->state = MS_TOP_EXITED;
        out->exit_known = true;
        if (header->end_time_ns > out->duration_ns) {
            out->duration_ns = header->end_time_ns;
        }
    } else {
        out->state = is_here(header->host) ? MS_TOP_KILLED : MS_TOP_UNKNOWN;
    }
    out->running = out->state == MS_TOP_RUNNING;
    out->killed = out->state == MS_TOP_KILLED;
}

static void read_open(struct ms_reader *reader, struct ms_top_process *out)
{
    memcpy(&out->header, &reader->header, sizeof(out->header));
    out->events = out->header.events;
    for (size_t i = 0; i < ms_reader_count(&reader->devices); i++) {
        if (!read_device(reader, ms_reader_place(&reader->devices, i), out)) {
            (void)snprintf(out->why, sizeof(out->why), "the statistics of a device are damaged");
        }
    }
    if (out->devices.bytes > 0) {
        qsort(out->devices.at, ms_top_device_count(out), sizeof(struct ms_top_device), by_index);
    }
    set_state(reader, out);
}

void ms_top_read(const char *path, struct ms_top_process *out)
{
    struct stat status;
    char file[PATH_MAX];
    const bool folder = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
    memset(out, 0, sizeof(*out));
    (void)snprintf(out->path, sizeof(out->path), "%s", path);
    if (snprintf(file, sizeof(file), "%s%s%s", path, folder ? "/" : "",
                 folder ? MS_TRACE_FILE : "") >= (int)sizeof(file)) {
        (void)snprintf(out->why, sizeof(out->why), "the path is too long");
        return;
    }
    struct ms_reader *reader = ms_pages_map(sizeof(*reader));
    if (!reader) {
        (void)snprintf(out->why, sizeof(out->why), "out of memory while reading it");
        return;
    }
    if (ms_reader_open(reader, file, out->why, sizeof(out->why))) {
        read_open(reader, out);
        ms_reader_close(reader);
    }
    ms_pages_unmap(reader, sizeof(*reader));
}

void ms_top_process_free(struct ms_top_process *process)
{
    ms_buffer_free(&process->devices);
}
