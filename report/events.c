#include "report/events.h"

#include <stdio.h>
#include <stdlib.h>

#include "report/encoding.h"
#include "report/reader.h"

struct pass {
    const struct ms_events_visitor *visitor;
    struct ms_reader reader;
    struct ms_codec codec;
    uint64_t next_event; /* the number that the next one should have */
    bool gap;            /* events before it are missing */
};

static void tell_gap(struct pass *pass, const struct ms_extent_header *header)
{
    const struct ms_base *base = (const struct ms_base *)(header + 1);

    for (uint32_t i = 0; i < header->base_count; i++) {
        if (base[i].device < MS_DEVICE_COUNT) {
            pass->visitor->gap(pass->visitor->ctx, (uint8_t)base[i].device, &base[i].sums,
                               header->start_time_ns);
        }
    }
}

static void visit_window(struct pass *pass, struct ms_extent_place *place)
{
    struct ms_reader *reader = &pass->reader;
    const struct ms_extent_header *header = (const struct ms_extent_header *)reader->extent;
    uint64_t left = place->committed_bytes;
    size_t bytes = 1;

    if (!ms_reader_load(reader, place)) {
        pass->gap = true;
        return;
    }
    if (pass->gap || header->first_event != pass->next_event) {
        tell_gap(pass, header);
    }
    ms_codec_reset(&pass->codec, header->start_time_ns);
    while (left > 0 && bytes > 0) {
        const uint8_t *at = (const uint8_t *)reader->extent + header->payload_offset +
                            (place->committed_bytes - left);
        struct ms_event event;
        uint64_t time_ns;

        bytes = ms_decode(&pass->codec, at, left, &event, &time_ns);
        if (bytes > 0) {
            pass->visitor->event(pass->visitor->ctx, &event, time_ns);
            left -= bytes;
        }
    }
    pass->gap = left > 0;
    pass->next_event = header->first_event + place->count;
}

/* What no window has yet; after a gap it tells of nothing that is known. */
static void visit_tail(struct pass *pass)
{
    const struct ms_reader *reader = &pass->reader;

    if (pass->gap || pass->next_event < reader->tail_first) {
        return;
    }
    for (uint64_t number = pass->next_event; number < reader->tail_end; number++) {
        const struct ms_timed_event *timed = ms_reader_tail(reader, number);

        if (!timed) {
            return;
        }
        pass->visitor->event(pass->visitor->ctx, &timed->event, timed->time_ns);
    }
}

bool ms_events_visit(const char *path, const struct ms_events_visitor *visitor, char *why,
                     size_t why_bytes)
{
    struct pass *pass = calloc(1, sizeof(*pass));
    bool opened = false;

    if (!pass) {
        (void)snprintf(why, why_bytes, "%s: no memory to read it", path);
        return false;
    }
    pass->visitor = visitor;
    opened = ms_reader_open(&pass->reader, path, why, why_bytes);
    for (size_t i = 0; opened && i < ms_reader_count(&pass->reader.windows); i++) {
        visit_window(pass, ms_reader_place(&pass->reader.windows, i));
    }
    if (opened) {
        visit_tail(pass);
        ms_reader_close(&pass->reader);
    }
    free(pass);
    return opened;
}
