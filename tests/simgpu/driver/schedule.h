/* SPDX-License-Identifier: Apache-2.0 */
/* When the host sees that work has ended. The work itself always runs as soon as it can, so that
 * nobody waits forever. With SIMGPU_SCHEDULE=late, queries deny that work has ended until the host
 * has waited for it, or for work behind it. All under sim_lock.
 *
 * Vector clocks record the order: for each stream, how much of every other stream's work comes
 * before its own next work; an event has the clock of its record; the host has the clock of what it
 * waited for. */
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

/* Whether a query may report that the work has ended, which it has. A thread that polls, and asks
 * nothing else of the device, gets yes after a while, which then counts as a wait. */
bool sim_schedule_shows(CUstream stream);
bool sim_schedule_shows_event(CUevent event);

/* This thread made another call to the device than a query. */
void sim_schedule_went_on(void);

void sim_clock_free(struct sim_clock *clock);

#endif
