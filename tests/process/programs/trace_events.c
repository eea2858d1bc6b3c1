#include "trace_events.h"

#include <stdio.h>

#include "report/encoding.h"
#include "report/reader.h"

typedef void (*say_t)(const struct ms_model *model, const struct ms_event *event);

static bool say_window(const struct ms_model *model, struct ms_reader *reader,
                       struct ms_extent_place *place, say_t say)
{
    static struct ms_codec codec;
    const struct ms_extent_header *header = (const struct ms_extent_header *)reader->extent;
    struct ms_event event;
    uint64_t time_ns;
    size_t bytes = 1;
    if (!ms_reader_load(reader, place)) {
        return false;
    }
    ms_codec_reset(&codec, header->start_time_ns);
    for (uint64_t left = place->committed_bytes; left > 0 && bytes > 0; left -= bytes) {
        const uint8_t *at = (const uint8_t *)reader->extent + header->payload_offset +
                            (place->committed_bytes - left);
        bytes = ms_decode(&codec, at, left, &event, &time_ns);
        if (bytes > 0) {
            say(model, &event);
        }
    }
    return true;
}

/* The windows, then what is not packed yet. */
bool trace_events(const struct ms_model *model, const char *path, say_t say)
{
    static struct ms_reader reader;
    char why[256] = "a window is damaged";
    bool good = ms_reader_open(&reader, path, why, sizeof(why));
    uint64_t next = 0;
    for (size_t i = 0; good && i < ms_reader_count(&reader.windows); i++) {
        struct ms_extent_place *place = ms_reader_place(&reader.windows, i);
        const struct ms_extent_header *header = (const struct ms_extent_header *)reader.extent;
        good = say_window(model, &reader, place, say);
        next = header->first_event + place->count;
    }
    if (!good) {
        (void)fprintf(stderr, "%s\n", why);
        return false;
    }
    next = next < reader.tail_first ? reader.tail_first : next;
    for (; next < reader.tail_end; next++) {
        const struct ms_timed_event *timed = ms_reader_tail(&reader, next);
        if (timed != NULL) {
            say(model, &timed->event);
        }
    }
    ms_reader_close(&reader);
    return true;
}
