/* What a trace says of tags and steps, a line each, in order: trace_tags FILE.
 *
 *     tag ID OUTER COLOR NAME        a definition; the name as hexadecimal bytes
 *     begin THREAD TAG               likewise end
 *     step NUMBER SOURCE
 *     alloc BYTES TAG                a block or a tensor, and the tag of its site */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/encoding.h"
#include "report/model.h"
#include "report/reader.h"

static void say_tags(const struct ms_model *model)
{
    const struct ms_tag_read *tag;
    for (uint32_t id = 1; (tag = ms_definitions_tag(model->definitions, id)) != NULL; id++) {
        (void)printf("tag %u %u %08x ", id, tag->is.outer, tag->is.color);
        for (uint32_t i = 0; i < tag->is.name_bytes; i++) {
            (void)printf("%02x", (unsigned char)tag->name[i]);
        }
        (void)printf("\n");
    }
}

static void say_event(const struct ms_model *model, const struct ms_event *event)
{
    const struct ms_site_definition *site;
    switch (event->kind) {
    case MS_EVENT_TAG_BEGIN:
    case MS_EVENT_TAG_END:
        (void)printf("%s %" PRIu64 " %" PRIu64 "\n",
                     event->kind == MS_EVENT_TAG_BEGIN ? "begin" : "end", event->id, event->aux);
        break;
    case MS_EVENT_STEP:
        (void)printf("step %" PRIu64 " %" PRIu64 "\n", event->id, event->aux);
        break;
    case MS_EVENT_BLOCK_ALLOC:
    case MS_EVENT_TENSOR_BORN:
        site = ms_definitions_site(model->definitions, event->site);
        (void)printf("alloc %" PRIu64 " %u\n", event->bytes, site != NULL ? site->tag : 0);
        break;
    default:
        break;
    }
}

/* Every event that can be read: the windows, then what is not packed yet. */
static void say_events(const struct ms_model *model, struct ms_reader *reader)
{
    static struct ms_codec codec;
    uint64_t next = 0;
    for (size_t i = 0; i < ms_reader_count(&reader->windows); i++) {
        struct ms_extent_place *place = ms_reader_place(&reader->windows, i);
        const struct ms_extent_header *header = (const struct ms_extent_header *)reader->extent;
        struct ms_event event;
        uint64_t time_ns, left;
        size_t bytes = 1;
        if (!ms_reader_load(reader, place)) {
            (void)fprintf(stderr, "a window is damaged\n");
            exit(1);
        }
        ms_codec_reset(&codec, header->start_time_ns);
        for (left = place->committed_bytes; left > 0 && bytes > 0; left -= bytes) {
            const uint8_t *at = (const uint8_t *)reader->extent + header->payload_offset +
                                (place->committed_bytes - left);
            bytes = ms_decode(&codec, at, left, &event, &time_ns);
            if (bytes > 0) {
                say_event(model, &event);
            }
        }
        next = header->first_event + place->count;
    }
    next = next < reader->tail_first ? reader->tail_first : next;
    for (; next < reader->tail_end; next++) {
        const struct ms_timed_event *timed = ms_reader_tail(reader, next);
        if (timed != NULL) {
            say_event(model, &timed->event);
        }
    }
}

int main(int count, char **arguments)
{
    char why[256];
    static struct ms_reader reader;
    struct ms_model *model = count == 2 ? ms_model_new(arguments[1], why, sizeof(why)) : NULL;
    if (model == NULL || !ms_reader_open(&reader, arguments[1], why, sizeof(why))) {
        (void)fprintf(stderr, "%s\n", count == 2 ? why : "usage: trace_tags FILE");
        return 1;
    }
    say_tags(model);
    say_events(model, &reader);
    ms_reader_close(&reader);
    ms_model_delete(model);
    return 0;
}
