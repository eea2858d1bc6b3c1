/* SPDX-License-Identifier: Apache-2.0 */
/* When the host sees that work has ended. See schedule.h. */
#include "schedule.h"

#include "context.h"
#include "entry.h"
#include "event.h"
#include "settings.h"
#include "stream.h"

#include <stdio.h>
#include <stdlib.h>

/* When a thread counts as polling: after so many queries in a row, or after this time and at least
 * three. */
#define POLLS      1000u
#define FEW_POLLS  3u
#define POLLING_NS UINT64_C(20000000)

static struct sim_clock host;

/* ---- clocks ---------------------------------------------------------------------------------- */

static struct sim_tick *find(const struct sim_clock *clock, uint64_t stream)
{
    for (size_t i = 0; i < clock->count; i++) {
        if (clock->ticks[i].stream == stream) {
            return &clock->ticks[i];
        }
    }
    return NULL;
}

/* Without memory for it, the host sees the end later than it could. */
static void raise_to(struct sim_clock *clock, uint64_t stream, uint64_t position)
{
    struct sim_tick *tick = find(clock, stream);
    if (!tick && clock->count == clock->room) {
        size_t room = clock->room * 2 + 4;
        struct sim_tick *longer = realloc(clock->ticks, room * sizeof *longer);
        if (!longer) {
            return;
        }
        clock->ticks = longer;
        clock->room = room;
    }
    if (!tick) {
        tick = &clock->ticks[clock->count++];
        *tick = (struct sim_tick){stream, 0};
    }
    tick->position = position > tick->position ? position : tick->position;
}

static void join(struct sim_clock *clock, const struct sim_clock *other)
{
    for (size_t i = 0; i < other->count; i++) {
        raise_to(clock, other->ticks[i].stream, other->ticks[i].position);
    }
}

void sim_clock_free(struct sim_clock *clock)
{
    free(clock->ticks);
    *clock = (struct sim_clock){NULL, 0, 0};
}

static bool is_late(void)
{
    return sim_settings.late;
}

/* Everything before the stream's next work, including its own. The legacy stream waits for the
 * blocking ones of its context, and they for it. */
static void join_stream(struct sim_clock *clock, CUstream stream)
{
    join(clock, &stream->clock);
    raise_to(clock, stream->id, stream->submitted);
    for (CUstream other = stream->context->streams; other; other = other->next) {
        if ((stream->legacy && sim_stream_is_blocking(other)) ||
            (other->legacy && sim_stream_is_blocking(stream))) {
            join(clock, &other->clock);
            raise_to(clock, other->id, other->submitted);
        }
    }
}

void sim_schedule_record(CUevent event)
{
    if (is_late() && event->stream) {
        event->clock.count = 0;
        join_stream(&event->clock, event->stream);
        raise_to(&event->clock, event->stream->id, event->position);
    }
}

void sim_schedule_wait(CUstream stream, CUevent event)
{
    if (is_late()) {
        join(&stream->clock, &event->clock);
    }
}

void sim_schedule_seen(CUstream stream)
{
    if (is_late()) {
        join_stream(&host, stream);
    }
}

void sim_schedule_seen_event(CUevent event)
{
    if (is_late()) {
        join(&host, &event->clock);
    }
}

/* ---- queries --------------------------------------------------------------------------------- */

static _Thread_local struct {
    const void *of;
    uint64_t times, since_ns;
} polling;

void sim_schedule_went_on(void)
{
    polling.of = NULL;
}

static bool polls_in_vain(const void *of)
{
    static bool said;
    uint64_t now_ns = sim_now_ns();
    if (polling.of != of) {
        polling.of = of;
        polling.times = 0;
        polling.since_ns = now_ns;
    }
    polling.times++;
    if (polling.times < POLLS &&
        (polling.times < FEW_POLLS || now_ns - polling.since_ns < POLLING_NS)) {
        return false;
    }
    if (!said) {
        said = true;
        (void)fputs(
            "simgpu: a thread asks again and again whether work has ended, and does nothing "
            "else: it is told that it has\n",
            stderr);
    }
    return true;
}

static bool host_knows(uint64_t stream, uint64_t position)
{
    const struct sim_tick *tick = find(&host, stream);
    return position == 0 || (tick && tick->position >= position);
}

bool sim_schedule_shows_event(CUevent event)
{
    if (!is_late() || !event->stream || event->shared ||
        host_knows(event->stream->id, event->position)) {
        return true;
    }
    if (polls_in_vain(event)) {
        sim_schedule_seen_event(event);
        return true;
    }
    return false;
}

bool sim_schedule_shows(CUstream stream)
{
    if (!is_late() || host_knows(stream->id, stream->submitted)) {
        return true;
    }
    if (polls_in_vain(stream)) {
        sim_schedule_seen(stream);
        return true;
    }
    return false;
}
