/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a trace for the first time: the log, the pages of devices, and every record in order. */
#include "report/model/reading/read_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "allocator/base/clock.h"
#include "report/model/reading/read_sites.h"
#include "report/model/reading/reading.h"
#include "report/read/progress.h"
#include "report/trace/encoding.h"

/* Null: memory ran out. */
struct ms_model_device *ms_reading_device(struct ms_model *model, uint64_t index)
{
    struct ms_model_device *device = &model->devices[index & (MS_DEVICE_COUNT - 1)];

    if (!device->series) {
        device->series = calloc(1, sizeof(*device->series));
        if (!device->series) {
            return NULL;
        }
        ms_series_init(device->series);
    }
    device->used = true;
    return device;
}

static uint64_t last_time(const struct ms_model *model)
{
    uint64_t last = 0;

    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        if (model->devices[i].sums.last_time_ns > last) {
            last = model->devices[i].sums.last_time_ns;
        }
    }
    return last;
}

static void set_end(struct ms_model *model, bool running)
{
    const struct ms_file_header *header = &model->header;

    model->duration_ns = last_time(model);
    if (header->state == MS_TRACE_CLOSED) {
        model->end = MS_PROCESS_ENDED;
        model->duration_ns = header->end_time_ns;
    } else if (running) {
        const uint64_t now_ns = ms_clock_unix_ns();

        model->end = MS_PROCESS_RUNNING;
        if (now_ns > header->start_unix_ns && now_ns - header->start_unix_ns > model->duration_ns) {
            model->duration_ns = now_ns - header->start_unix_ns;
        }
    } else if (header->state == MS_TRACE_LEFT) {
        /* Other threads may have recorded events since. */
        model->end = MS_PROCESS_EXITED;
        if (header->end_time_ns > model->duration_ns) {
            model->duration_ns = header->end_time_ns;
        }
    } else {
        model->end = MS_PROCESS_KILLED;
    }
}

static void note_damage(struct ms_model *model, const struct ms_reader *reader)
{
    if (reader->header_damaged) {
        ms_model_warn(model, "the header is damaged: names and times may be wrong");
    }
    if (reader->cut) {
        ms_model_warn(model, "the file ends inside an extent: it was cut");
    }
    if (reader->strange_extents > 0) {
        ms_model_warn(
            model, "%" PRIu64 " parts are damaged or belong to another trace; they were left out",
            reader->strange_extents);
    }
    if (ms_reader_count(&reader->windows) == 0) {
        ms_model_warn(model, "no record of an event could be read");
    }
}

static bool read_all(struct ms_reading *reading)
{
    struct ms_model *model = reading->model;
    struct ms_reader *reader = reading->reader;
    const struct ms_file_header *header = &model->header;

    for (size_t i = 0; i < ms_reader_count(&reader->logs); i++) {
        ms_reading_log(reading, ms_reader_place(&reader->logs, i));
    }
    ms_refusals_check(&reading->refusals, model);
    for (size_t i = 0; i < ms_reader_count(&reader->devices); i++) {
        ms_reading_page(reading, ms_reader_place(&reader->devices, i));
    }
    ms_model_read_definitions(model, reader);
    if (!ms_reading_start_steps(reading)) {
        return false;
    }
    if (!ms_reading_take_digest(reading)) {
        return false;
    }
    for (size_t i = 0; i < ms_reader_count(&reader->windows); i++) {
        struct ms_extent_place *place = ms_reader_place(&reader->windows, i);

        ms_progress_note("reading", i, ms_reader_count(&reader->windows));
        if (place->first_event >= model->digest_events) { /* the digest has the others */
            ms_reading_window(reading, place);
        }
    }
    ms_reading_tail(reading);
    /* With a live writer: definitions that the newest events name were written before them. */
    if (reader->running) {
        ms_model_read_definitions(model, reader);
    }
    ms_model_check_definitions(model);
    ms_refusals_start(&reading->refusals, reading->model, UINT64_MAX);

    /* A live process may have packed more since its tail was read. */
    const bool to_the_end = reading->complete && reading->next_event >= header->events;

    for (size_t i = 0; i < ms_reader_count(&reader->devices) && !to_the_end; i++) {
        ms_reading_page_sums(reading, ms_reader_place(&reader->devices, i));
    }
    /* Each device of a trace has its page: without any, all were lost. */
    model->sums_exact = to_the_end || header->events == 0 || ms_reader_count(&reader->devices) > 0;
    for (int i = 0; i < MS_DEVICE_COUNT && !to_the_end; i++) {
        if (model->devices[i].used && !(reading->sums_read >> i & 1)) {
            model->sums_exact = false;
        }
    }
    return true;
}

/* Sets the trace's file and folder from either. False: the path is too long. */
static bool set_paths(struct ms_model *model, const char *path)
{
    struct stat status;
    const char *slash = strrchr(path, '/');
    int length;

    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode)) {
        snprintf(model->dir, sizeof(model->dir), "%s", path);
        length = snprintf(model->path, sizeof(model->path), "%s/%s", path, MS_TRACE_FILE);
    } else {
        snprintf(model->dir, sizeof(model->dir), "%.*s", slash ? (int)(slash - path) : 1,
                 slash ? path : ".");
        length = snprintf(model->path, sizeof(model->path), "%s", path);
    }
    return length < (int)sizeof(model->path);
}

static bool read_model(struct ms_model *model, struct ms_reader *reader, struct ms_codec *codec,
                       char *why, size_t why_bytes)
{
    struct ms_reading reading = {
        .model = model, .reader = reader, .codec = codec, .complete = true};

    if (!ms_reader_open(reader, model->path, why, why_bytes)) {
        return false;
    }
    model->definitions = ms_definitions_new();
    model->sites = ms_site_table_new();
    ms_refusals_init(&reading.refusals);
    model->header = reader->header;
    note_damage(model, reader);
    if (!model->definitions || !model->sites || !read_all(&reading)) {
        snprintf(why, why_bytes, "%s: no memory to read it", model->path);
        ms_reader_close(reader);
        ms_loop_delete(reading.loop);
        ms_refusals_free(&reading.refusals);
        return false;
    }
    model->lost_events = model->header.lost_events;
    model->recycled_events = model->header.recycled_events > model->digest_events
                                 ? model->header.recycled_events
                                 : model->digest_events;
    model->lost_entries = model->header.lost_entries;
    model->events =
        model->header.events > model->read_events ? model->header.events : model->read_events;
    model->lost_definitions = model->header.lost_definitions;
    set_end(model, reader->running);
    ms_refusals_finish(&reading.refusals, model);
    ms_reading_finish_steps(&reading);
    ms_reader_close(reader);
    ms_loop_delete(reading.loop);
    ms_refusals_free(&reading.refusals);
    return true;
}

struct ms_model *ms_model_new(const char *path, char *why, size_t why_bytes)
{
    struct ms_model *model = calloc(1, sizeof(*model));
    struct ms_reader *reader = calloc(1, sizeof(*reader));
    struct ms_codec *codec = calloc(1, sizeof(*codec));
    bool read = false;

    if (!model || !reader || !codec) {
        snprintf(why, why_bytes, "%s: no memory to read it", path);
    } else if (!set_paths(model, path)) {
        snprintf(why, why_bytes, "%s: the path is too long", path);
    } else {
        read = read_model(model, reader, codec, why, why_bytes);
    }
    free(reader);
    free(codec);
    if (model && !read) {
        ms_model_delete(model);
        model = NULL;
    }
    return model;
}
