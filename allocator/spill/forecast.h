/* SPDX-License-Identifier: Apache-2.0 */
/* Foretells uses of memory from the last step of a training, because steps repeat.
 *
 *   lives    a step's allocations come in the order of the last step's: each is matched with its
 *            like there, by its site (by its size if the site is unknown), and lives as long as
 *            that did
 *   uses     memory older than a step is used when it was used in the last one (struct ms_heat)
 *   need     how much lived at each allocation of the last step, and so how much will have to be
 *            elsewhere
 *
 * The program may report steps. Otherwise the forecast finds them: a place in the order of
 * allocations that comes again and again, with many others between (see forecast.c).
 *
 * Time is counted in allocations and frees, so that a replay foretells what the run did. It keeps
 * the last MS_FORECAST_ALLOCATIONS only, whatever lives. No lock of its own. */
#ifndef MEMSHIM_ALLOCATOR_SPILL_FORECAST_H
#define MEMSHIM_ALLOCATOR_SPILL_FORECAST_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/device/device_ops.h"

#define MS_NEVER UINT64_MAX

enum { MS_FORECAST_ALLOCATIONS = 1 << 16, MS_HEAT_USES = 4 };

struct ms_foretold {
    uint64_t id;
    ms_addr_t addr;
    uint64_t bytes;
    uint64_t allocated, freed; /* ticks; freed 0: it lives */
    uint64_t occupied_bytes;   /* of all that lived then, itself included */
    uint64_t like;             /* the number of its like in the step before; 0: none was found */
    uint64_t row; /* its key in the low 16 bits; above it those of the allocations before, 16 bits
                     each */
};

/* The uses of one place in memory, the latest first. For callers that need many at once it also
 * keeps a prediction: its number, the next use, and how many of the live allocations there it
 * covers. */
struct ms_heat {
    uint64_t used[MS_HEAT_USES]; /* ticks; 0: none */
    uint64_t next_use;
    uint32_t known;
    uint32_t prediction;
};

struct ms_forecast {
    struct ms_foretold *allocations; /* by number % MS_FORECAST_ALLOCATIONS; numbers from 1 */
    uint64_t *number_of;             /* by id % MS_FORECAST_ALLOCATIONS */
    uint64_t *recent_of; /* by the hash of a few keys in a row: where these were last seen */
    uint64_t last;       /* number of the last allocation */
    uint64_t tick;
    uint64_t like;              /* of the last allocation, or of the last one that had a like */
    uint64_t step, step_before; /* the last allocation before the step, and before the one before */
    uint64_t step_tick;         /* when the step began */
    uint64_t period;            /* ticks of the step before; 0: no whole step yet */
    uint64_t steps;
    bool explicit_steps;  /* the program reports steps */
    uint64_t row;         /* of the last allocation */
    uint64_t gap;         /* allocations from one found step to the next */
    uint64_t met, missed; /* allocations of this step that had a like, and that had none */
    bool trusted;         /* most allocations of the step before had a like */
};

/* False: the host is out of memory. */
bool ms_forecast_init(struct ms_forecast *forecast);
void ms_forecast_destroy(struct ms_forecast *forecast);

/* The program reports that a step begins. */
void ms_forecast_step(struct ms_forecast *forecast);

void ms_forecast_allocated(struct ms_forecast *forecast, uint64_t id, ms_addr_t addr,
                           uint64_t bytes, uint32_t site, uint64_t occupied_bytes);
void ms_forecast_freed(struct ms_forecast *forecast, uint64_t id);

/* Whether a whole step is known, and the current one repeats it. */
bool ms_forecast_knows(const struct ms_forecast *forecast);

/* The oldest allocation still known; all from there to `last` are known. */
uint64_t ms_forecast_oldest(const struct ms_forecast *forecast);

/* The next use of a live allocation: right before its free. MS_NEVER: unknown. */
uint64_t ms_forecast_next_use(const struct ms_forecast *forecast,
                              const struct ms_foretold *allocation);

/* Notes a use now. */
void ms_heat_use(const struct ms_forecast *forecast, struct ms_heat *heat);

/* The next use, judging by the step before. MS_NEVER: it had none there. */
uint64_t ms_heat_next_use(const struct ms_forecast *forecast, const struct ms_heat *heat);

/* The most bytes occupied at a time from now to the tick `until`; 0: unknown. */
uint64_t ms_forecast_need(const struct ms_forecast *forecast, uint64_t until);

/* The tick at which the step ends. */
uint64_t ms_forecast_step_end(const struct ms_forecast *forecast);

#endif
