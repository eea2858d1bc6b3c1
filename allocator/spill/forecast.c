/* SPDX-License-Identifier: Apache-2.0 */
/* Foretells from the last step: see forecast.h.
 *
 * Finding steps: a few keys in a row identify a place in the order of allocations. If steps are
 * alike, most places come again after a step's number of allocations; places that a step has
 * several times (one layer is like the next) come again sooner. So a step begins at a place that
 * comes again after the longest gap of late, if the last step began at least that long ago. */
#include "allocator/spill/forecast.h"

#include "allocator/base/containers/pages.h"

enum {
    LEAST_GAP = 32,   /* allocations: a place that comes again sooner marks no step */
    MOST_SKIPPED = 8, /* allocations of the last step that this one may leave out */
    /* How far to look for the place after losing it: around the last known one. */
    LOST_BEHIND = 64,
    LOST_AHEAD = 256,
    ENOUGH_MET = 32
};

bool ms_forecast_init(struct ms_forecast *forecast)
{
    *forecast = (struct ms_forecast){0};
    forecast->allocations = ms_pages_map(MS_FORECAST_ALLOCATIONS * sizeof(*forecast->allocations));
    forecast->number_of = ms_pages_map(MS_FORECAST_ALLOCATIONS * sizeof(*forecast->number_of));
    forecast->recent_of = ms_pages_map(MS_FORECAST_ALLOCATIONS * sizeof(*forecast->recent_of));
    if (forecast->allocations == NULL || forecast->number_of == NULL ||
        forecast->recent_of == NULL) {
        ms_forecast_destroy(forecast);
        return false;
    }
    return true;
}

void ms_forecast_destroy(struct ms_forecast *forecast)
{
    if (forecast->allocations != NULL) {
        ms_pages_unmap(forecast->allocations,
                       MS_FORECAST_ALLOCATIONS * sizeof(*forecast->allocations));
    }
    if (forecast->number_of != NULL) {
        ms_pages_unmap(forecast->number_of, MS_FORECAST_ALLOCATIONS * sizeof(*forecast->number_of));
    }
    if (forecast->recent_of != NULL) {
        ms_pages_unmap(forecast->recent_of, MS_FORECAST_ALLOCATIONS * sizeof(*forecast->recent_of));
    }
    *forecast = (struct ms_forecast){0};
}

static inline struct ms_foretold *allocation_at(const struct ms_forecast *forecast, uint64_t number)
{
    return &forecast->allocations[number % MS_FORECAST_ALLOCATIONS];
}

uint64_t ms_forecast_oldest(const struct ms_forecast *forecast)
{
    return forecast->last < MS_FORECAST_ALLOCATIONS ? 1
                                                    : forecast->last - MS_FORECAST_ALLOCATIONS + 1;
}

static bool known(const struct ms_forecast *forecast, uint64_t number)
{
    return number >= ms_forecast_oldest(forecast) && number <= forecast->last;
}

/* ---- steps */

/* Whether enough allocations have a like that the others can be expected to repeat, too. */
static bool mostly_met(const struct ms_forecast *forecast)
{
    return forecast->met >= 3 * forecast->missed;
}

/* Begins a step after the allocation `before`. */
static void begin_step(struct ms_forecast *forecast, uint64_t before)
{
    bool whole = known(forecast, before + 1) && before < forecast->last;
    forecast->trusted = forecast->period > 0 && mostly_met(forecast);
    forecast->step_before = before;
    forecast->step = forecast->last;
    forecast->step_tick = forecast->tick;
    forecast->period =
        whole ? forecast->tick - allocation_at(forecast, before + 1)->allocated + 1 : 0;
    forecast->like = before;
    forecast->met = 0;
    forecast->missed = 0;
    forecast->steps++;
}

void ms_forecast_step(struct ms_forecast *forecast)
{
    if (!forecast->explicit_steps) {
        /* Allocations before the first reported step may have been half a step. */
        forecast->explicit_steps = true;
        forecast->steps = 0;
        forecast->step = forecast->last;
    }
    if (forecast->last > forecast->step || forecast->steps == 0) {
        begin_step(forecast, forecast->step);
    }
}

/* Handles a place in the order of allocations that was last seen at the allocation `before` (0:
 * never). */
static void find_step(struct ms_forecast *forecast, uint64_t before)
{
    uint64_t since = forecast->last - forecast->step;
    if (since > 2 * forecast->gap) {
        forecast->gap -= forecast->gap / 2;
    }
    uint64_t gap = before != 0 ? forecast->last + 1 - before : 0;
    if (gap >= LEAST_GAP && gap < MS_FORECAST_ALLOCATIONS / 2 && 10 * gap >= 9 * forecast->gap &&
        10 * since >= 9 * forecast->gap) {
        forecast->gap = gap;
        begin_step(forecast, before - 1);
    }
}

/* ---- allocations and frees */

static inline uint64_t mix(uint64_t value)
{
    value *= UINT64_C(0x9e3779b97f4a7c15);
    return value ^ (value >> 29);
}

enum { KEY_BITS = 16, PLACE_KEYS = 3 };

static inline bool same_key(uint64_t a, uint64_t b)
{
    return (a ^ b) << (64 - KEY_BITS) == 0;
}

/* Whether both rows end with the same few allocations. */
static inline bool same_place(uint64_t a, uint64_t b)
{
    return (a ^ b) << (64 - PLACE_KEYS * KEY_BITS) == 0;
}

/* The number of that place in the step before, the nearest to `next`; 0: it is not there. */
static uint64_t find_place(const struct ms_forecast *forecast, uint64_t row, uint64_t next)
{
    for (uint64_t away = 0; away < LOST_AHEAD; away++) {
        if (next + away <= forecast->step &&
            same_place(allocation_at(forecast, next + away)->row, row)) {
            return next + away;
        }
        if (away < LOST_BEHIND && next > forecast->step_before + away &&
            same_place(allocation_at(forecast, next - away)->row, row)) {
            return next - away;
        }
    }
    return 0;
}

/* The number of the allocation's like in the step before; 0: there is none where it should be. */
static uint64_t find_like(const struct ms_forecast *forecast, uint64_t row, uint64_t row_before)
{
    uint64_t next = forecast->like + 1;
    if (forecast->period == 0 || !known(forecast, forecast->step_before + 1)) {
        return 0;
    }
    if (next <= forecast->step && same_key(allocation_at(forecast, next)->row, row)) {
        return next;
    }
    uint64_t place = find_place(forecast, row, next);
    for (uint64_t at = next; place == 0 && at <= next + MOST_SKIPPED && at <= forecast->step;
         at++) {
        place = same_key(allocation_at(forecast, at)->row, row) ? at : 0;
    }
    bool further = place == 0 && row_before >= next && row_before <= forecast->step;
    return further ? row_before : place;
}

void ms_forecast_allocated(struct ms_forecast *forecast, uint64_t id, ms_addr_t addr,
                           uint64_t bytes, uint32_t site, uint64_t occupied_bytes)
{
    uint64_t key = mix(site != 0 ? site : ~bytes) >> (64 - KEY_BITS);
    forecast->row = forecast->row << KEY_BITS | key;
    uint64_t *recent = &forecast->recent_of[mix(forecast->row) % MS_FORECAST_ALLOCATIONS];
    uint64_t before = known(forecast, *recent) ? *recent : 0;
    if (!forecast->explicit_steps) {
        find_step(forecast, before);
    }
    uint64_t like = find_like(forecast, forecast->row, before);
    forecast->like = like != 0 ? like : forecast->like;
    *(like != 0 ? &forecast->met : &forecast->missed) += 1;
    uint64_t number = ++forecast->last;
    *recent = number;
    *allocation_at(forecast, number) = (struct ms_foretold){.id = id,
                                                            .addr = addr,
                                                            .bytes = bytes,
                                                            .allocated = ++forecast->tick,
                                                            .occupied_bytes = occupied_bytes,
                                                            .like = like,
                                                            .row = forecast->row};
    forecast->number_of[id % MS_FORECAST_ALLOCATIONS] = number;
}

void ms_forecast_freed(struct ms_forecast *forecast, uint64_t id)
{
    uint64_t number = forecast->number_of[id % MS_FORECAST_ALLOCATIONS];
    forecast->tick++;
    if (number != 0 && known(forecast, number) && allocation_at(forecast, number)->id == id) {
        allocation_at(forecast, number)->freed = forecast->tick;
    }
}

/* ---- foretelling */

bool ms_forecast_knows(const struct ms_forecast *forecast)
{
    return forecast->period > 0 &&
           (forecast->met + forecast->missed >= ENOUGH_MET ? mostly_met(forecast)
                                                           : forecast->trusted);
}

uint64_t ms_forecast_step_end(const struct ms_forecast *forecast)
{
    uint64_t end = forecast->step_tick + forecast->period;
    return end > forecast->tick ? end : forecast->tick;
}

uint64_t ms_forecast_next_use(const struct ms_forecast *forecast,
                              const struct ms_foretold *allocation)
{
    if (allocation->like == 0 || !known(forecast, allocation->like)) {
        return MS_NEVER;
    }
    const struct ms_foretold *like = allocation_at(forecast, allocation->like);
    if (like->freed == 0) {
        return MS_NEVER;
    }
    uint64_t freed = allocation->allocated + (like->freed - like->allocated);
    return freed > forecast->tick ? freed : forecast->tick;
}

void ms_heat_use(const struct ms_forecast *forecast, struct ms_heat *heat)
{
    /* Uses in close succession count as one, at the time of the first. */
    if (heat->used[0] != 0 && forecast->tick - heat->used[0] <= forecast->period / 64) {
        return;
    }
    for (int k = MS_HEAT_USES - 1; k > 0; k--) {
        heat->used[k] = heat->used[k - 1];
    }
    heat->used[0] = forecast->tick;
}

uint64_t ms_heat_next_use(const struct ms_forecast *forecast, const struct ms_heat *heat)
{
    uint64_t soonest = MS_NEVER;
    uint64_t oldest = heat->used[MS_HEAT_USES - 1];
    if (oldest != 0 && oldest + forecast->period > forecast->tick) {
        /* Used more often than there is room to remember: its usual interval foretells the next
         * use. */
        soonest = forecast->tick + (heat->used[0] - oldest) / (MS_HEAT_USES - 1);
    }
    for (int k = 0; k < MS_HEAT_USES && heat->used[k] != 0; k++) {
        uint64_t again = heat->used[k] + forecast->period;
        if (again <= forecast->tick && forecast->tick - again < forecast->period / 16 &&
            heat->used[0] == heat->used[k]) {
            again = forecast->tick; /* it is late */
        } else if (again <= forecast->tick) {
            continue;
        }
        soonest = again < soonest ? again : soonest;
    }
    return soonest;
}

/* The largest occupied bytes of the allocations (from, to] until the tick `until`. At the tick
 * `now`, this step has come as far as `from`. */
static uint64_t most_between(const struct ms_forecast *forecast, uint64_t from, uint64_t to,
                             uint64_t now, uint64_t begin, uint64_t until)
{
    uint64_t most = 0;
    for (uint64_t at = from + 1; at <= to && known(forecast, at); at++) {
        const struct ms_foretold *allocation = allocation_at(forecast, at);
        if (now + (allocation->allocated - begin) > until) {
            break;
        }
        most = allocation->occupied_bytes > most ? allocation->occupied_bytes : most;
    }
    return most;
}

uint64_t ms_forecast_need(const struct ms_forecast *forecast, uint64_t until)
{
    uint64_t like = forecast->like;
    if (forecast->period == 0 || !known(forecast, like + 1)) {
        return 0;
    }
    uint64_t start = forecast->step_tick - forecast->period;
    uint64_t begin =
        like > forecast->step_before ? allocation_at(forecast, like)->allocated : start;
    uint64_t most = most_between(forecast, like, forecast->step, forecast->tick, begin, until);
    uint64_t end = forecast->tick + (forecast->step_tick - begin);
    uint64_t again =
        until > end ? most_between(forecast, forecast->step_before, like, end, start, until) : 0;
    return again > most ? again : most;
}
