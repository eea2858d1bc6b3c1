/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps steps, tags and moves of contents, as the trace recorded them, within bounds. */
#include "report/trace/recorded.h"

#include "report/trace/aggregate.h"
#include "report/trace/words.h"

#define MOST_STEPS  4096u
#define MOST_RANGES 65536u
#define MOST_OPEN   1024u
#define MOST_MOVES  10000u /* that the timeline shows */
#define ONE_MOVE_NS 1000000u

/* ---- steps ---- */

/* Drops every second step. */
static void thin(struct ms_model_steps *steps)
{
    struct ms_model_step *all = (struct ms_model_step *)steps->times.at;
    uint64_t *events = (uint64_t *)steps->events.at;

    for (size_t i = 0; i < MOST_STEPS / 2; i++) {
        all[i] = all[2 * i];
        events[i] = events[2 * i];
    }
    steps->times.bytes = MOST_STEPS / 2 * sizeof(*all);
    steps->events.bytes = MOST_STEPS / 2 * sizeof(*events);
    steps->stride *= 2;
}

static void take_step(struct ms_model_steps *steps, const struct ms_event *event, uint64_t time_ns,
                      uint64_t number)
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

        uint64_t *place = steps->count % steps->stride == 0
                              ? ms_buffer_extend(&steps->events, sizeof(*place))
                              : NULL;
        struct ms_model_step *step = place ? ms_buffer_extend(&steps->times, sizeof(*step)) : NULL;

        if (step) {
            *step = (struct ms_model_step){event->id, time_ns};
            *place = number;
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

/* Ends the innermost range of that tag on the thread, and all ranges inside it that never ended, as
 * after an exception. */
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

void ms_recorded_take(struct ms_model_steps *steps, struct ms_model_tags *tags,
                      const struct ms_event *event, uint64_t time_ns, uint64_t number)
{
    switch (event->kind) {
    case MS_EVENT_STEP:
        take_step(steps, event, time_ns, number);
        break;
    case MS_EVENT_TAG_BEGIN:
        begin_range(tags, event, time_ns);
        break;
    case MS_EVENT_TAG_END:
        end_range(tags, event, time_ns);
        break;
    default: /* MS_EVENT_CALL: read with the events themselves */
        break;
    }
}

/* ---- moves ---- */

void ms_recorded_move(struct ms_buffer *moves, const struct ms_event *event, uint64_t time_ns)
{
    struct ms_model_move *all = (struct ms_model_move *)moves->at;
    const size_t count = moves->bytes / sizeof(*all);
    const bool down = event->kind == MS_EVENT_SPILL;
    struct ms_model_move *last = count > 0 ? &all[count - 1] : NULL;

    if (!last || last->device != event->device || last->down != down ||
        time_ns - last->time_ns > ONE_MOVE_NS) {
        last = count < MOST_MOVES ? ms_buffer_extend(moves, sizeof(*last)) : NULL;
    }
    if (last) {
        last->time_ns = time_ns;
        last->held_ns += event->aux;
        last->bytes += event->bytes;
        last->device = event->device;
        last->down = down;
    }
}

/* ---- storing ---- */

void ms_recorded_store(const struct ms_model_steps *steps, const struct ms_model_tags *tags,
                       const struct ms_buffer *moves, struct ms_buffer *out)
{
    ms_words_put(out, steps->count);
    ms_words_put(out, steps->stride);
    ms_words_put(out, steps->number);
    for (int source = 0; source < MS_STEP_SOURCE_COUNT; source++) {
        ms_words_put(out, steps->by_source[source]);
    }
    ms_words_put_buffer(out, &steps->times, sizeof(struct ms_model_step));
    ms_words_put_buffer(out, &tags->ranges, sizeof(struct ms_model_range));
    ms_words_put_buffer(out, &tags->open, sizeof(size_t));
    ms_words_put(out, tags->left_out);
    ms_words_put_buffer(out, moves, sizeof(struct ms_model_move));
}

static bool are_open(const struct ms_model_tags *tags)
{
    const size_t count = tags->ranges.bytes / sizeof(struct ms_model_range);

    for (size_t i = 0; i < tags->open.bytes / sizeof(size_t); i++) {
        if (((const size_t *)tags->open.at)[i] >= count) {
            return false;
        }
    }
    return true;
}

bool ms_recorded_load(struct ms_model_steps *steps, struct ms_model_tags *tags,
                      struct ms_buffer *moves, struct ms_words_in *in)
{
    steps->count = ms_words_get(in);
    steps->stride = ms_words_get(in);
    steps->number = ms_words_get(in);
    for (int source = 0; source < MS_STEP_SOURCE_COUNT; source++) {
        steps->by_source[source] = ms_words_get_most(in, 1) != 0;
    }
    ms_words_get_buffer(in, &steps->times, sizeof(struct ms_model_step), MOST_STEPS);
    ms_words_get_unstored(in, &steps->events,
                          steps->times.bytes / sizeof(struct ms_model_step) * sizeof(uint64_t));
    ms_words_get_buffer(in, &tags->ranges, sizeof(struct ms_model_range), MOST_RANGES);
    ms_words_get_buffer(in, &tags->open, sizeof(size_t), MOST_OPEN);
    tags->left_out = ms_words_get(in);
    ms_words_get_buffer(in, moves, sizeof(struct ms_model_move), MOST_MOVES);
    for (size_t i = 0; i < moves->bytes / sizeof(struct ms_model_move); i++) {
        in->failed |= ((const struct ms_model_move *)moves->at)[i].device >= MS_DEVICE_COUNT;
    }
    return !in->failed && are_open(tags);
}

void ms_recorded_free(struct ms_model_steps *steps, struct ms_model_tags *tags,
                      struct ms_buffer *moves)
{
    ms_buffer_free(&steps->times);
    ms_buffer_free(&steps->events);
    ms_buffer_free(&tags->ranges);
    ms_buffer_free(&tags->open);
    ms_buffer_free(moves);
}
