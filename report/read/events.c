/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the windows of a trace in order, then its tail, and reports the gaps between them. */
#include "report/read/events.h"

#include <stdio.h>
#include <stdlib.h>

#include "allocator/base/containers/pages.h"
#include "report/trace/records.h"

struct events_pass {
    const struct ms_events_visitor *visitor;
    struct ms_reader *reader;
    struct ms_codec codec;
    uint64_t next_event; /* the expected number of the next event */
    bool gap;            /* events before it are missing */
    uint64_t damaged_windows;
};

static void report_gap(struct events_pass *pass, const struct ms_extent_header *header)
{
    const struct ms_base *base = (const struct ms_base *)(header + 1);

    for (uint32_t i = 0; pass->visitor->gap && i < header->base_count; i++) {
        if (base[i].device < MS_DEVICE_COUNT) {
            pass->visitor->gap(pass->visitor->ctx, (uint8_t)base[i].device, &base[i].sums,
                               header->start_time_ns);
        }
    }
}

static void visit_window(struct events_pass *pass, struct ms_extent_place *place)
{
    const struct ms_extent_header *header = (const struct ms_extent_header *)pass->reader->extent;
    struct ms_records records;
    struct ms_event event;
    uint64_t time_ns;

    if (!ms_reader_load(pass->reader, place)) {
        pass->gap = true;
        pass->damaged_windows++;
        return;
    }
    if (pass->gap || header->first_event != pass->next_event) {
        report_gap(pass, header);
    }
    records = ms_records_begin(&pass->codec, header, place->committed_bytes);
    while (ms_records_next(&records, &event, &time_ns)) {
        pass->visitor->event(pass->visitor->ctx, &event, time_ns);
    }
    pass->gap = records.left_bytes > 0;
    pass->damaged_windows += pass->gap;
    pass->next_event = header->first_event + place->count;
}

/* Visits the events that no window has yet. Skips them after a gap, because the tail has no sums to
 * go on with. */
static void visit_tail(struct events_pass *pass)
{
    const struct ms_reader *reader = pass->reader;

    if (pass->gap || pass->next_event < reader->tail_first) {
        return;
    }
    for (uint64_t number = pass->next_event; number < reader->tail_end; number++) {
        const struct ms_timed_event *timed = ms_reader_tail(reader, number);

        if (!timed) {
            pass->damaged_windows++;
            return;
        }
        pass->visitor->event(pass->visitor->ctx, &timed->event, timed->time_ns);
    }
}

bool ms_events_walk(struct ms_reader *reader, const struct ms_events_visitor *visitor,
                    uint64_t *damaged_windows)
{
    struct events_pass *pass = ms_pages_map(sizeof(*pass));

    if (!pass) {
        return false;
    }
    pass->visitor = visitor;
    pass->reader = reader;
    for (size_t i = 0; i < ms_reader_count(&reader->windows); i++) {
        visit_window(pass, ms_reader_place(&reader->windows, i));
    }
    visit_tail(pass);
    *damaged_windows = pass->damaged_windows;
    ms_pages_unmap(pass, sizeof(*pass));
    return true;
}

bool ms_events_visit(const char *path, const struct ms_events_visitor *visitor, char *why,
                     size_t why_bytes)
{
    struct ms_reader *reader = calloc(1, sizeof(*reader));
    uint64_t damaged_windows;
    bool read = false;

    if (!reader) {
        (void)snprintf(why, why_bytes, "%s: no memory to read it", path);
        return false;
    }
    if (ms_reader_open(reader, path, why, why_bytes)) {
        read = ms_events_walk(reader, visitor, &damaged_windows);
        if (!read) {
            (void)snprintf(why, why_bytes, "%s: no memory to read it", path);
        }
        ms_reader_close(reader);
    }
    free(reader);
    return read;
}
