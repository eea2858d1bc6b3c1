/* SPDX-License-Identifier: Apache-2.0 */
/* What is spilled first, and what comes back when: the forecast by itself, and steps of trainings
 * through a pool, of which each byte over the cap has to go down once and up once. */
#include "allocator/spill/forecast.h"
#include "rig.h"

#define CAP_BYTES   (64 * MIB)
#define BLOCK_BYTES (8 * MIB)

/* ---- the forecast */

enum { STEP_BIRTHS = 40 };

/* A step: allocations live until the mirrored one, as activations do; `odd` more allocations in the
 * middle, or so many fewer. Every other site comes twice in a row, as layers do. */
static void play_step(struct ms_forecast *forecast, uint64_t *id, int odd)
{
    uint64_t first = *id;
    for (int k = 0; k < STEP_BIRTHS; k++) {
        for (int extra = 0; k == STEP_BIRTHS / 2 && extra < odd; extra++) {
            ms_forecast_allocated(forecast, 1000000 + *id + (uint64_t)extra, 1 * GRANULE, MIB,
                                  900 + (uint32_t)extra, 0);
        }
        if (k < STEP_BIRTHS / 2 || k >= STEP_BIRTHS / 2 - odd) {
            ms_forecast_allocated(forecast, (*id)++, GRANULE, MIB, 1 + (uint32_t)k * 2 / 3,
                                  (uint64_t)(k + 1) * MIB);
        }
    }
    for (uint64_t last = *id; last-- > first;) {
        ms_forecast_freed(forecast, last);
    }
}

/* Half a step, in which each allocation is used again when the mirrored one of the last step died.
 */
static void check_half_step(struct ms_forecast *forecast, uint64_t *id)
{
    for (int k = 0; k < STEP_BIRTHS / 2; k++) {
        ms_forecast_allocated(forecast, (*id)++, GRANULE, MIB, 1 + (uint32_t)k * 2 / 3,
                              (uint64_t)(k + 1) * MIB);
        uint64_t expected = forecast->tick + 2 * (uint64_t)(STEP_BIRTHS - k) - 1;
        const struct ms_foretold *allocation =
            &forecast->allocations[forecast->last % MS_FORECAST_ALLOCATIONS];
        cr_assert_eq(ms_forecast_next_use(forecast, allocation), expected, "birth %d", k);
    }
    cr_assert(ms_forecast_knows(forecast));
}

Test(spill_choice, what_dies_as_it_did)
{
    struct ms_forecast forecast;
    uint64_t id = 1;
    cr_assert(ms_forecast_init(&forecast));
    for (int step = 0; step < 3; step++) {
        ms_forecast_step(&forecast);
        play_step(&forecast, &id, 0);
    }
    ms_forecast_step(&forecast);
    cr_assert_eq(forecast.period, UINT64_C(2) * STEP_BIRTHS);
    check_half_step(&forecast, &id);
    cr_assert_eq(ms_forecast_need(&forecast, ms_forecast_step_end(&forecast)), STEP_BIRTHS * MIB);
    cr_assert_eq(ms_forecast_need(&forecast, forecast.tick + 3), (STEP_BIRTHS / 2 + 3) * MIB);
    ms_forecast_destroy(&forecast);
}

Test(spill_choice, steps_that_nobody_tells_are_found)
{
    struct ms_forecast forecast;
    uint64_t id = 1;
    cr_assert(ms_forecast_init(&forecast));
    for (int step = 0; step < 4; step++) {
        play_step(&forecast, &id, 0);
    }
    cr_assert_geq(forecast.steps, 2);
    cr_assert_eq(forecast.period, UINT64_C(2) * STEP_BIRTHS);
    cr_assert(ms_forecast_knows(&forecast));
    ms_forecast_destroy(&forecast);
}

Test(spill_choice, the_place_is_found_again)
{
    struct ms_forecast forecast;
    uint64_t id = 1;
    cr_assert(ms_forecast_init(&forecast));
    for (int step = 0; step < 3; step++) {
        ms_forecast_step(&forecast);
        play_step(&forecast, &id, step == 2 ? 6 : 0);
    }
    cr_assert(ms_forecast_knows(&forecast), "%lu met, %lu missed", (unsigned long)forecast.met,
              (unsigned long)forecast.missed);
    cr_assert_leq(forecast.missed, 6 + 3);
    ms_forecast_step(&forecast);
    play_step(&forecast, &id, 0);
    ms_forecast_step(&forecast);
    play_step(&forecast, &id, -12);
    cr_assert_leq(forecast.missed, 3);
    ms_forecast_destroy(&forecast);
}

Test(spill_choice, nothing_is_known_of_what_does_not_repeat)
{
    struct ms_forecast forecast;
    cr_assert(ms_forecast_init(&forecast));
    uint64_t id = 1;
    for (int step = 0; step < 4; step++) {
        ms_forecast_step(&forecast);
        for (int k = 0; k < STEP_BIRTHS; k++, id++) {
            ms_forecast_allocated(&forecast, id, GRANULE, MIB, (uint32_t)id, MIB);
            cr_assert_eq(ms_forecast_next_use(&forecast, &forecast.allocations[forecast.last]),
                         MS_NEVER);
        }
        cr_assert_not(ms_forecast_knows(&forecast));
    }
    ms_forecast_destroy(&forecast);
}

Test(spill_choice, more_births_than_are_kept)
{
    struct ms_forecast forecast;
    cr_assert(ms_forecast_init(&forecast));
    ms_forecast_step(&forecast);
    for (uint64_t id = 1; id <= UINT64_C(3) * MS_FORECAST_ALLOCATIONS; id++) {
        ms_forecast_allocated(&forecast, id, GRANULE, MIB, (uint32_t)(id % 1000) + 1, MIB);
    }
    ms_forecast_freed(&forecast, 1);
    ms_forecast_step(&forecast);
    cr_assert_not(ms_forecast_knows(&forecast), "a step that is not known whole");
    cr_assert_eq(forecast.last - ms_forecast_oldest(&forecast) + 1, MS_FORECAST_ALLOCATIONS);
    ms_forecast_destroy(&forecast);
}

/* ---- steps through a pool */

struct job {
    struct rig *rig;
    struct ms_block_info state[6];
    int states;
    uint64_t used_bytes; /* where they lay on the host */
    uint32_t dice;
};

static struct job job_begin(const struct ms_spill_choice *choice, int states)
{
    struct job job = {.states = states, .dice = 12345};
    job.rig = rig_make_as((struct rig_wishes){.granule_bytes = GRANULE,
                                              .total_bytes = 4 * CAP_BYTES,
                                              .cap_bytes = CAP_BYTES,
                                              .host_limit_bytes = 4 * CAP_BYTES,
                                              .spill_limit_bytes = 2 * CAP_BYTES,
                                              .spill_choice = choice});
    for (int k = 0; k < states; k++) {
        job.state[k] = rig_alloc(job.rig, BLOCK_BYTES, MS_STREAM_DEVICE);
        ms_dry_write(job.rig->dry, job.state[k].addr, BLOCK_BYTES, job.state[k].id);
    }
    return job;
}

static void use(struct job *job, const struct ms_block_info *block, bool written)
{
    uint64_t on_host = ms_pool_touch(job->rig->pool, block->addr, block->bytes);
    cr_assert(ms_dry_holds(job->rig->dry, block->addr, block->bytes, block->id));
    job->used_bytes += written ? 2 * on_host : on_host;
    (void)ms_pool_promote_ahead(job->rig->pool);
}

static struct ms_block_info allocation(struct job *job, uint64_t bytes, uint32_t site)
{
    struct ms_request request = {
        .bytes = bytes, .stream = MS_STREAM_DEVICE, .site = site, .may_wait = true};
    struct ms_block_info block;
    cr_assert_eq(ms_pool_alloc(job->rig->pool, &request, &block), MS_OK);
    ms_dry_write(job->rig->dry, block.addr, block.bytes, block.id);
    (void)ms_pool_promote_ahead(job->rig->pool);
    return block;
}

static void death(struct job *job, const struct ms_block_info *block)
{
    use(job, block, false);
    rig_free(job->rig, *block, MS_STREAM_DEVICE);
    (void)ms_pool_promote_ahead(job->rig->pool);
}

/* A small block comes and goes: time passes. */
static void work(struct job *job, uint32_t site)
{
    for (int k = 0; k < 4; k++) {
        struct ms_block_info block = allocation(job, 4 * KIB, site);
        death(job, &block);
    }
}

/* Forward, backward, and the optimizer: `layers` activations, of 8 MiB each. */
static void train(struct job *job, int layers)
{
    struct ms_block_info activation[16];
    if (!ms_pool_step(job->rig->pool)) {
        (void)ms_pool_promote(job->rig->pool, UINT64_MAX);
    }
    for (int k = 0; k < layers; k++) {
        activation[k] = allocation(job, BLOCK_BYTES, 10 + (uint32_t)k);
        work(job, 2);
    }
    for (int k = layers; k-- > 0;) {
        work(job, 3);
        death(job, &activation[k]);
    }
    work(job, 4);
    for (int k = 0; k < job->states; k++) {
        use(job, &job->state[k], true);
    }
    rig_check(job->rig);
}

static uint64_t moved(struct job *job)
{
    struct ms_spill_stats stats = rig_stats(job->rig).spill;
    return stats.down_bytes + stats.up_bytes + job->used_bytes;
}

static void job_end(struct job *job)
{
    for (int k = 0; k < job->states; k++) {
        rig_free(job->rig, job->state[k], MS_STREAM_DEVICE);
    }
    rig_end(job->rig);
}

enum { WARM_UP = 5, STEPS = 10 };

struct cost {
    uint64_t moved_bytes;
    uint64_t used_bytes; /* the part of it that was used where it lay on the host */
    uint64_t halts;
};

/* 32 MiB of state and 6 activations: 16 MiB over the cap. */
static struct cost cost_of(const struct ms_spill_choice *choice)
{
    struct job job = job_begin(choice, 4);
    for (int step = 0; step < WARM_UP; step++) {
        train(&job, 6);
    }
    struct cost before = {moved(&job), job.used_bytes, rig_stats(job.rig).spill.halts};
    for (int step = 0; step < STEPS; step++) {
        train(&job, 6);
    }
    struct cost cost = {moved(&job) - before.moved_bytes, job.used_bytes - before.used_bytes,
                        rig_stats(job.rig).spill.halts - before.halts};
    job_end(&job);
    return cost;
}

Test(spill_choice, steps_that_repeat_move_little_more_than_the_least)
{
    uint64_t least = (uint64_t)STEPS * 2 * 16 * MIB;
    struct cost predicted = cost_of(&ms_spill_choice_predict);
    cr_assert_leq(predicted.moved_bytes * 10, least * 13, "%lu MiB",
                  (unsigned long)(predicted.moved_bytes / MIB));
    cr_assert_eq(predicted.used_bytes, 0, "all came back in time");
    cr_assert_leq(predicted.halts, UINT64_C(2) * STEPS, "once down and once up a step");
    struct cost lru = cost_of(&ms_spill_choice_lru);
    cr_assert_leq(predicted.moved_bytes * 10, lru.moved_bytes * 6, "%lu and %lu MiB",
                  (unsigned long)(predicted.moved_bytes / MIB),
                  (unsigned long)(lru.moved_bytes / MIB));
}

static uint64_t moved_by_changing_steps(const struct ms_spill_choice *choice)
{
    struct job job = job_begin(choice, 4);
    for (int step = 0; step < WARM_UP + 2 * STEPS; step++) {
        job.dice = job.dice * 1664525 + 1013904223;
        train(&job, 2 + (int)(job.dice >> 16) % 7);
    }
    uint64_t bytes = moved(&job);
    job_end(&job);
    return bytes;
}

Test(spill_choice, steps_that_change_cost_at_most_a_quarter_more_than_without_foresight)
{
    uint64_t predicted = moved_by_changing_steps(&ms_spill_choice_predict);
    uint64_t lru = moved_by_changing_steps(&ms_spill_choice_lru);
    cr_assert_leq(predicted * 4, lru * 5, "%lu and %lu MiB", (unsigned long)(predicted / MIB),
                  (unsigned long)(lru / MIB));
}

/* Until memory is short nobody listens; then the pool's listener still hears all. */
Test(spill_choice, listens_only_when_memory_is_short)
{
    struct job job = job_begin(&ms_spill_choice_predict, 4);
    struct ms_block_info block = allocation(&job, BLOCK_BYTES, 1);
    size_t heard = rig_count(job.rig, MS_EVENT_BLOCK_ALLOC);
    cr_assert_eq(heard, 5);
    death(&job, &block);
    train(&job, 6);
    cr_assert_gt(rig_count(job.rig, MS_EVENT_BLOCK_ALLOC), heard + 6);
    cr_assert_eq(rig_count(job.rig, MS_EVENT_BLOCK_ALLOC),
                 rig_count(job.rig, MS_EVENT_BLOCK_FREE) + 4);
    job_end(&job);
}
