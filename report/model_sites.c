#include "report/model_sites.h"

#include <inttypes.h>
#include <string.h>

#define MOST_STEPS  4096u
#define MOST_RANGES 65536u
#define MOST_OPEN   1024u

/* ---- definitions ---- */

/* False where the extent ends in the midst of a definition. */
static bool read_extent(ms_definitions_t *definitions, const struct ms_reader *reader,
                        struct ms_extent_place *place)
{
    const struct ms_extent_header *header = (const struct ms_extent_header *)reader->extent;

    while (place->done_bytes < place->committed_bytes) {
        const char *at = reader->extent + header->payload_offset + place->done_bytes;
        const uint64_t left = place->committed_bytes - place->done_bytes;
        struct ms_site_entry entry;

        if (left < sizeof(entry)) {
            return false;
        }
        memcpy(&entry, at, sizeof(entry));

        const uint64_t bytes = sizeof(entry) + ((entry.bytes + UINT64_C(7)) & ~UINT64_C(7));

        if (bytes > left) {
            return false;
        }
        ms_definitions_add(definitions, entry.kind, at + sizeof(entry), entry.bytes);
        place->done_bytes += bytes;
    }
    return true;
}

void ms_model_read_definitions(struct ms_model *model, struct ms_reader *reader)
{
    for (size_t i = 0; i < ms_reader_count(&reader->sites); i++) {
        struct ms_extent_place *place = ms_reader_place(&reader->sites, i);

        if (!ms_reader_load(reader, place) || !read_extent(model->definitions, reader, place)) {
            model->damaged_definitions++;
        }
    }
    ms_site_table_sample(model->sites, ms_definitions_sampling_bytes(model->definitions));
}

void ms_model_check_definitions(struct ms_model *model)
{
    model->damaged_definitions += ms_definitions_damaged(model->definitions);
    if (model->damaged_definitions > 0) {
        ms_model_warn(model,
                      "%" PRIu64 " parts of the call sites are damaged: stacks may be missing or "
                      "cut",
                      model->damaged_definitions);
    }
}

/* ---- steps ---- */

/* Every second goes. */
static void thin(struct ms_model_steps *steps)
{
    struct ms_model_step *all = (struct ms_model_step *)steps->times.at;

    for (size_t i = 0; i < MOST_STEPS / 2; i++) {
        all[i] = all[2 * i];
    }
    steps->times.bytes = MOST_STEPS / 2 * sizeof(*all);
    steps->stride *= 2;
}

static void take_step(struct ms_model_steps *steps, const struct ms_event *event, uint64_t time_ns)
{
    steps->stride = steps->stride ? steps->stride : 1;
    steps->number = event->id > steps->number ? event->id : steps->number;
    if (event->aux < MS_STEP_SOURCE_COUNT) {
        steps->by_source[event->aux] = true;
    }
    if (steps->count % steps->stride == 0) {
        if (steps->times.bytes == MOST_STEPS * sizeof(struct ms_model_step)) {
            thin(steps);
        }

        struct ms_model_step *step = steps->count % steps->stride == 0
                                         ? ms_buffer_extend(&steps->times, sizeof(*step))
                                         : NULL;

        if (step) {
            *step = (struct ms_model_step){event->id, time_ns};
        }
    }
    steps->count++;
}

/* ---- tags ---- */

static void begin_range(struct ms_model_tags *tags, const struct ms_event *event, uint64_t time_ns)
{
    const size_t count = tags->ranges.bytes / sizeof(struct ms_model_range);

    if (count >= MOST_RANGES || tags->open.bytes / sizeof(size_t) >= MOST_OPEN) {
        tags->left_out++;
        return;
    }

    struct ms_model_range *range = ms_buffer_extend(&tags->ranges, sizeof(*range));
    size_t *open = range ? ms_buffer_extend(&tags->open, sizeof(*open)) : NULL;

    if (open) {
        *open = count;
        *range = (struct ms_model_range){time_ns, UINT64_MAX, event->id, event->aux};
    }
}

/* The innermost range of that tag on the thread; what was pushed within it and never ended, as
 * exceptions have it, ends with it. */
static void end_range(struct ms_model_tags *tags, const struct ms_event *event, uint64_t time_ns)
{
    struct ms_model_range *all = (struct ms_model_range *)tags->ranges.at;
    size_t *open = (size_t *)tags->open.at;
    const size_t count = tags->open.bytes / sizeof(*open);
    size_t from = count, kept = 0;

    for (size_t i = count; i-- > 0 && from == count;) {
        const struct ms_model_range *range = &all[open[i]];

        from = range->thread == event->id && range->tag == event->aux ? i : from;
    }
    for (size_t i = 0; i < count; i++) {
        if (i >= from && all[open[i]].thread == event->id) {
            all[open[i]].end_ns = time_ns;
        } else {
            open[kept++] = open[i];
        }
    }
    tags->open.bytes = kept * sizeof(*open);
}

void ms_model_take_event(struct ms_model *model, const struct ms_event *event, uint64_t time_ns)
{
    switch (event->kind) {
    case MS_EVENT_STEP:
        take_step(&model->steps, event, time_ns);
        break;
    case MS_EVENT_TAG_BEGIN:
        begin_range(&model->tags, event, time_ns);
        break;
    default: /* MS_EVENT_TAG_END */
        end_range(&model->tags, event, time_ns);
        break;
    }
}
