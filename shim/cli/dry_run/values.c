/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out where values were read, by line of the program. */
#include "shim/cli/dry_run/values.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "report/model/site_rows.h"
#include "report/read/events.h"

#define MOST_PLACES 256u
#define WHY_BYTES   (PATH_MAX + 512)

/* Reads at one call site; its name is looked up once, after all were counted. */
struct read_place {
    uint32_t site;
    uint64_t what, bytes, count; /* what: the event's aux */
};

static void count_read(void *ctx, const struct ms_event *event, uint64_t time_ns)
{
    struct ms_buffer *places = ctx;
    struct read_place *all = (struct read_place *)places->at;
    const size_t count = places->bytes / sizeof(*all);
    struct read_place *added;

    (void)time_ns;
    if (event->kind != MS_EVENT_VALUE_READ) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (all[i].site == event->site && all[i].what == event->aux &&
            all[i].bytes == event->bytes) {
            all[i].count++;
            return;
        }
    }
    added = count < MOST_PLACES ? ms_buffer_extend(places, sizeof(*added)) : NULL;
    if (added) {
        *added = (struct read_place){event->site, event->aux, event->bytes, 1};
    }
}

static void name_place(const struct ms_model *model, const struct read_place *place,
                       struct ms_dry_value *value)
{
    struct ms_buffer line = {0};

    ms_site_add_line(model, place->site, &line);
    ms_site_add_user(model, place->site, &line);
    ms_buffer_append(&line, "", 1);
    if (!line.failed) {
        (void)strncpy(value->line, line.at, sizeof(value->line) - 1);
    }
    ms_buffer_free(&line);
    value->reader = (unsigned)(place->what & 0xff);
    value->type = (unsigned)(place->what >> 8);
    value->bytes = place->bytes;
    value->count = place->count;
}

static void add_value(struct ms_dry_answer *answer, const struct ms_dry_value *value)
{
    struct ms_dry_value *added;

    for (size_t i = 0; i < ms_dry_value_count(answer); i++) {
        struct ms_dry_value *old = ms_dry_value_at(answer, i);

        if (old->reader == value->reader && old->type == value->type &&
            old->bytes == value->bytes && strcmp(old->line, value->line) == 0) {
            old->count += value->count;
            return;
        }
    }
    added = ms_buffer_extend(&answer->values, sizeof(*added));
    if (added) {
        *added = *value;
    }
}

void ms_dry_values_take(const struct ms_model *model, struct ms_dry_answer *answer)
{
    struct ms_buffer places = {0};
    const struct ms_events_visitor visitor = {.ctx = &places, .event = count_read};
    char why[WHY_BYTES];

    if (ms_events_visit(model->path, &visitor, why, sizeof(why))) {
        for (size_t i = 0; i < places.bytes / sizeof(struct read_place); i++) {
            struct ms_dry_value value = {.count = 0};

            name_place(model, (const struct read_place *)places.at + i, &value);
            add_value(answer, &value);
        }
    }
    ms_buffer_free(&places);
}

static int by_count(const void *a, const void *b)
{
    const struct ms_dry_value *first = a, *second = b;

    if (first->count != second->count) {
        return first->count < second->count ? 1 : -1;
    }
    return strcmp(first->line, second->line);
}

void ms_dry_values_sort(struct ms_dry_answer *answer)
{
    if (ms_dry_value_count(answer) > 1) {
        qsort(answer->values.at, ms_dry_value_count(answer), sizeof(struct ms_dry_value), by_count);
    }
}
