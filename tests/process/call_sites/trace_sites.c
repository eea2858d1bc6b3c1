/* SPDX-License-Identifier: Apache-2.0 */
/* What a trace says of call sites, a line each: trace_sites FILE. Text is given as hexadecimal
 * bytes, "-" where it is empty.
 *
 *     sampling MEAN                  bytes; 0: every allocation has its site
 *     site ID THREAD FLAGS TAG       of each site, and then its frames, the innermost first
 *     native ADDRESS MODULE          the address in the module's file, less one; the file's path
 *     python FIRST INSTRUCTION FILE FUNCTION TABLE
 *     alloc KIND ID BYTES SITE       of each event: kind and id as in allocator/base/events.def
 *     arena ID                       the block's own bytes do not count any more
 *     free KIND ID
 *     oom REQUESTED SITE */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "report/model/model.h"
#include "report/model/reading/read_model.h"
#include "trace_events.h"

static void say_bytes(const void *text, size_t bytes, char end)
{
    const unsigned char *at = text;
    for (size_t i = 0; i < bytes; i++) {
        (void)printf("%02x", at[i]);
    }
    (void)printf("%s%c", bytes == 0 ? "-" : "", end);
}

static void say_native(const ms_definitions_t *definitions, uint32_t node)
{
    const struct ms_native_definition *frame;
    for (; (frame = ms_definitions_native(definitions, node)) != NULL; node = frame->caller) {
        const struct ms_module_read *module = ms_definitions_module(definitions, frame->module);
        const char *path = module != NULL ? module->path : "";
        (void)printf("native %" PRIu64 " ", frame->address - 1);
        say_bytes(path, strlen(path), '\n');
    }
}

static void say_python(const ms_definitions_t *definitions, uint32_t node)
{
    const struct ms_python_definition *frame;
    for (; (frame = ms_definitions_python(definitions, node)) != NULL; node = frame->caller) {
        const struct ms_code_read *code = ms_definitions_code(definitions, frame->code);
        if (code == NULL) {
            (void)printf("python 0 %u - - -\n", frame->instruction);
            continue;
        }
        (void)printf("python %u %u ", code->is.first_line, frame->instruction);
        say_bytes(code->file, code->is.file_bytes, ' ');
        say_bytes(code->function, code->is.function_bytes, ' ');
        say_bytes(code->table, code->is.table_bytes, '\n');
    }
}

static void say_sites(const ms_definitions_t *definitions)
{
    (void)printf("sampling %" PRIu64 "\n", ms_definitions_sampling_bytes(definitions));
    for (uint32_t id = 1; id <= ms_definitions_site_count(definitions); id++) {
        const struct ms_site_definition *site = ms_definitions_site(definitions, id);
        if (site != NULL) {
            (void)printf("site %u %u %u %u\n", id, site->thread, site->flags, site->tag);
            say_native(definitions, site->native);
            say_python(definitions, site->python);
        }
    }
}

static void say_event(const struct ms_model *model, const struct ms_event *event)
{
    (void)model;
    switch (event->kind) {
    case MS_EVENT_BLOCK_ALLOC:
    case MS_EVENT_TENSOR_ALLOC:
    case MS_EVENT_HOST_ALLOC:
    case MS_EVENT_CHARGE:
    case MS_EVENT_CHUNK_CREATE:
        (void)printf("alloc %s %" PRIu64 " %" PRIu64 " %u\n", ms_event_names[event->kind],
                     event->id, event->bytes, event->site);
        break;
    case MS_EVENT_BLOCK_ARENA:
        (void)printf("arena %" PRIu64 "\n", event->id);
        break;
    case MS_EVENT_BLOCK_FREE:
    case MS_EVENT_TENSOR_FREE:
        (void)printf("free %s %" PRIu64 "\n", ms_event_names[event->kind], event->id);
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
        (void)fprintf(stderr, "%s\n", count == 2 ? why : "usage: trace_sites FILE");
        return 1;
    }
    say_sites(model->definitions);
    for (size_t i = 0; i < ms_model_oom_count(model); i++) {
        const struct ms_oom_state *state = &ms_model_oom_at(model, i)->record.state;
        (void)printf("oom %" PRIu64 " %u\n", state->requested_bytes, state->site);
    }
    const bool read = trace_events(model, arguments[1], say_event);
    ms_model_delete(model);
    return read ? 0 : 1;
}
