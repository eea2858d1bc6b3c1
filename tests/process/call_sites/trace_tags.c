/* SPDX-License-Identifier: Apache-2.0 */
/* What a trace says of tags and steps, a line each, in order: trace_tags FILE.
 *
 *     tag ID OUTER COLOR NAME        a definition; the name as hexadecimal bytes
 *     begin THREAD TAG               likewise end
 *     step NUMBER SOURCE
 *     alloc BYTES TAG                a block or a tensor, and the tag of its site */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "report/model/model.h"
#include "report/model/reading/read_model.h"
#include "trace_events.h"

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
    case MS_EVENT_TENSOR_ALLOC:
        site = ms_definitions_site(model->definitions, event->site);
        (void)printf("alloc %" PRIu64 " %u\n", event->bytes, site != NULL ? site->tag : 0);
        break;
    default:
        break;
    }
}

int main(int count, char **arguments)
{
    char why[256];
    struct ms_model *model = count == 2 ? ms_model_new(arguments[1], why, sizeof(why)) : NULL;
    if (model == NULL) {
        (void)fprintf(stderr, "%s\n", count == 2 ? why : "usage: trace_tags FILE");
        return 1;
    }
    say_tags(model);
    const bool read = trace_events(model, arguments[1], say_event);
    ms_model_delete(model);
    return read ? 0 : 1;
}
