/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the host learns that work has ended. Work itself is always carried out as soon as it can be,
 * so that nobody waits for what will not come; under SIMGPU_SCHEDULE=late, queries answer that it
 * has not ended until the host has waited for it, or for work behind it. All under sim_lock.
 *
 * Who is behind whom is kept as clocks: for each stream, how much of every other stream's work
 * comes before its own next work; an event has the clock of its record; the host has what it waited
 * for.
 */
#ifndef SIMGPU_SCHEDULE_H
#define SIMGPU_SCHEDULE_H

#include "driver_api.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_clock {
    struct sim_tick {
        uint64_t stream, position; /* a stream's id */
    } * ticks;
    size_t count, room;
};

/* The event was just marked as recorded in its stream. */
void sim_schedule_record(CUevent event);

/* Later work of the stream waits for the event. */
void sim_schedule_wait(CUstream stream, CUevent event);

/* The host has waited for all of the stream's work, or for the event. */
void sim_schedule_seen(CUstream stream);
void sim_schedule_seen_event(CUevent event);

/* Whether a query may answer that it has ended; it has. A thread that asks again and again and asks
 * nothing else of the device is answered yes, as an event that it waited for. */
bool sim_schedule_shows(CUstream stream);
bool sim_schedule_shows_event(CUevent event);

/* This thread asked something else of the device than whether it is done. */
void sim_schedule_went_on(void);

void sim_clock_free(struct sim_clock *clock);

#endif
