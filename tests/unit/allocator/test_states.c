/* SPDX-License-Identifier: Apache-2.0 */
/* What goes to the host where nobody tells what is used: optimizer state first, and of a step that
 * repeats nothing that lasts but it. */
#include "allocator/arenas/arena.h"
#include "rig.h"

#define CAP_BYTES   (64 * MIB)
#define BLOCK_BYTES (8 * MIB)

/* Call sites. */
enum { MODEL = 1, BATCH, LAYERS = 10, OPTIMIZER = 100, OPTIMIZER_TOO };

static bool is_optimizers(void *sites, uint32_t site)
{
    (void)sites;
    return site >= OPTIMIZER;
}

static struct rig *make(uint64_t cap_bytes, bool uses_untold, bool (*optimizers)(void *, uint32_t))
{
    return rig_make_as((struct rig_wishes){.granule_bytes = GRANULE,
                                           .total_bytes = 4 * CAP_BYTES,
                                           .cap_bytes = cap_bytes,
                                           .host_limit_bytes = 4 * CAP_BYTES,
                                           .spill_limit_bytes = 2 * CAP_BYTES,
                                           .spill_choice = &ms_spill_choice_predict,
                                           .uses_untold = uses_untold,
                                           .is_optimizers = optimizers});
}

static struct ms_block_info allocation(struct rig *rig, uint64_t bytes, uint32_t site)
{
    struct ms_request request = {
        .bytes = bytes, .stream = MS_STREAM_DEVICE, .site = site, .may_wait = true};
    struct ms_block_info block;
    cr_assert_eq(ms_pool_alloc(rig->pool, &request, &block), MS_OK);
    ms_dry_write(rig->dry, block.addr, block.bytes, block.id);
    (void)ms_pool_promote_ahead(rig->pool);
    return block;
}

static void allocations(struct rig *rig, struct ms_block_info *blocks, int count, uint32_t site)
{
    for (int k = 0; k < count; k++) {
        blocks[k] = allocation(rig, BLOCK_BYTES, site);
    }
}

static void deaths(struct rig *rig, const struct ms_block_info *blocks, int count)
{
    for (int k = count; k-- > 0;) {
        rig_free(rig, blocks[k], MS_STREAM_DEVICE);
        (void)ms_pool_promote_ahead(rig->pool);
    }
}

static uint64_t on_host(struct rig *rig, const struct ms_block_info *block)
{
    cr_assert(ms_dry_holds(rig->dry, block->addr, block->bytes, block->id));
    return ms_pool_on_host_bytes(rig->pool, block->addr, block->bytes);
}

/* ---- in blocks */

Test(states, the_last_parameters_goes_first_then_the_others_then_what_is_oldest)
{
    struct rig *rig = make(CAP_BYTES, true, is_optimizers);
    struct ms_block_info model[2];
    struct ms_block_info state[2];
    struct ms_block_info batch[4];
    struct ms_block_info more[3];
    allocations(rig, model, 2, MODEL);
    allocations(rig, state, 2, OPTIMIZER);
    allocations(rig, batch, 4, BATCH);
    more[0] = allocation(rig, BLOCK_BYTES, BATCH);
    cr_assert_eq(on_host(rig, &state[1]), BLOCK_BYTES);
    cr_assert_eq(on_host(rig, &state[0]), 0);
    more[1] = allocation(rig, BLOCK_BYTES, BATCH);
    cr_assert_eq(on_host(rig, &state[0]), BLOCK_BYTES);
    cr_assert_eq(on_host(rig, &model[0]), 0);
    more[2] = allocation(rig, BLOCK_BYTES, BATCH);
    cr_assert_eq(on_host(rig, &model[0]), BLOCK_BYTES);
    cr_assert_eq(on_host(rig, &model[1]), 0);

    /* And back the other way round: state last. */
    deaths(rig, more, 1);
    cr_assert_eq(ms_pool_promote(rig->pool, UINT64_MAX), BLOCK_BYTES);
    cr_assert_eq(on_host(rig, &model[0]), 0);
    deaths(rig, more + 1, 2);
    deaths(rig, batch, 4);
    deaths(rig, state, 2);
    deaths(rig, model, 2);
    rig_end(rig);
}

Test(states, a_step_that_is_not_over_is_at_work_on_what_it_asked_for)
{
    struct rig *rig = make(CAP_BYTES, true, is_optimizers);
    struct ms_block_info model[2];
    struct ms_block_info batch[4];
    struct ms_block_info state[2];
    allocations(rig, model, 2, MODEL);
    allocations(rig, batch, 4, BATCH);
    allocations(rig, state, 2, OPTIMIZER);
    struct ms_block_info work = allocation(rig, BLOCK_BYTES, OPTIMIZER_TOO);
    cr_assert_eq(on_host(rig, &model[0]), BLOCK_BYTES);
    cr_assert_eq(on_host(rig, &state[0]) + on_host(rig, &state[1]), 0);
    rig_free(rig, work, MS_STREAM_DEVICE);
    struct ms_block_info next = allocation(rig, BLOCK_BYTES, BATCH);
    struct ms_block_info after = allocation(rig, BLOCK_BYTES, BATCH);
    cr_assert_eq(on_host(rig, &state[1]), BLOCK_BYTES);
    cr_assert_eq(on_host(rig, &model[1]), 0);
    deaths(rig, (struct ms_block_info[]){next, after}, 2);
    deaths(rig, state, 2);
    deaths(rig, batch, 4);
    deaths(rig, model, 2);
    rig_end(rig);
}

/* ---- in arenas */

struct arena {
    ms_arenas_t *arenas;
    struct ms_block_info block;
};

static void born(const struct arena *arena, uint64_t offset, uint64_t bytes, uint32_t site)
{
    cr_assert_eq(
        ms_arenas_allocated(arena->arenas, arena->block.addr + offset, bytes, site, UINT64_MAX),
        MS_OK);
}

static void died(const struct arena *arena, uint64_t offset)
{
    cr_assert_eq(ms_arenas_freed(arena->arenas, arena->block.addr + offset, 0, UINT64_MAX), MS_OK);
}

static bool host_at(struct rig *rig, const struct arena *arena, uint64_t granule)
{
    return ms_pool_on_host_bytes(rig->pool, arena->block.addr + granule * GRANULE, GRANULE) > 0;
}

Test(states, a_granule_is_state_when_all_on_it_is)
{
    struct rig *rig = make(CAP_BYTES, true, is_optimizers);
    struct ms_event_sink none = {0};
    struct arena arena = {0};
    cr_assert_eq(ms_arenas_create(3, rig->pool, none, &arena.arenas), MS_OK);
    arena.block = allocation(rig, CAP_BYTES, MODEL);
    born(&arena, 0, 2 * GRANULE, MODEL);
    born(&arena, 2 * GRANULE, 2 * GRANULE + MIB, OPTIMIZER);
    born(&arena, 4 * GRANULE + MIB, MIB, MODEL); /* shares the last granule of the state */
    born(&arena, 5 * GRANULE, MIB / 2, OPTIMIZER);
    born(&arena, 5 * GRANULE + MIB, MIB / 2, OPTIMIZER_TOO);
    born(&arena, 7 * GRANULE, CAP_BYTES - 7 * GRANULE, BATCH);
    born(&arena, 6 * GRANULE, GRANULE, OPTIMIZER); /* of a step that is not over */
    struct ms_block_info more = allocation(rig, 3 * GRANULE, BATCH);
    for (uint64_t granule = 0; granule < 8; granule++) {
        cr_assert_eq(host_at(rig, &arena, granule), granule == 2 || granule == 3 || granule == 5,
                     "granule %lu", (unsigned long)granule);
    }

    /* What comes where state was is what it is; and now the step is over. */
    rig_free(rig, more, MS_STREAM_DEVICE);
    cr_assert_eq(ms_pool_promote(rig->pool, UINT64_MAX), 3 * GRANULE);
    died(&arena, 2 * GRANULE);
    born(&arena, 2 * GRANULE, GRANULE, MODEL);
    more = allocation(rig, GRANULE, BATCH); /* granule 3 is empty now */
    struct ms_block_info another = allocation(rig, GRANULE, BATCH);
    cr_assert_not(host_at(rig, &arena, 2));
    cr_assert(host_at(rig, &arena, 6));
    rig_free(rig, more, MS_STREAM_DEVICE);
    rig_free(rig, another, MS_STREAM_DEVICE);
    char why[256] = "";
    cr_assert(ms_arenas_is_valid(arena.arenas, why, sizeof(why)), "%s", why);
    ms_arenas_block_gone(arena.arenas, arena.block.addr, CAP_BYTES);
    rig_free(rig, arena.block, MS_STREAM_DEVICE);
    rig_check(rig);
    ms_arenas_destroy(arena.arenas);
    rig_end(rig);
}

/* ---- steps that repeat */

enum { MODEL_BLOCKS = 2, STATE_BLOCKS = 2, ACTIVATIONS = 6, MOST_ACTIVATIONS = 8 };

struct job {
    struct rig *rig;
    struct ms_block_info model[MODEL_BLOCKS];
    struct ms_block_info state[STATE_BLOCKS];
    uint64_t model_bytes, used_bytes; /* used where they lay on the host: of the model; of all */
};

static void use(struct job *job, const struct ms_block_info *block, bool written)
{
    job->used_bytes += on_host(job->rig, block) * (written ? 2 : 1);
}

static void use_model(struct job *job, bool written)
{
    uint64_t before = job->used_bytes;
    for (int k = 0; k < MODEL_BLOCKS; k++) {
        use(job, &job->model[k], written);
    }
    job->model_bytes += job->used_bytes - before;
}

/* A small block comes and goes: time passes. */
static void work(struct job *job, uint32_t site)
{
    for (int k = 0; k < 4; k++) {
        struct ms_block_info block = allocation(job->rig, 4 * KIB, site);
        rig_free(job->rig, block, MS_STREAM_DEVICE);
        (void)ms_pool_promote_ahead(job->rig->pool);
    }
}

static void train(struct job *job, int layers)
{
    struct ms_block_info activation[MOST_ACTIVATIONS];
    (void)ms_pool_step(job->rig->pool);
    for (int k = 0; k < layers; k++) {
        use_model(job, false);
        activation[k] = allocation(job->rig, BLOCK_BYTES, LAYERS + (uint32_t)k);
        work(job, 3);
    }
    for (int k = layers; k-- > 0;) {
        work(job, 4);
        use_model(job, false);
        use(job, &activation[k], false);
        rig_free(job->rig, activation[k], MS_STREAM_DEVICE);
        (void)ms_pool_promote_ahead(job->rig->pool);
    }
    work(job, 5);
    if (job->state[0].bytes == 0) {
        allocations(job->rig, job->state, STATE_BLOCKS, OPTIMIZER);
    }
    use_model(job, true);
    for (int k = 0; k < STATE_BLOCKS; k++) {
        use(job, &job->state[k], true);
    }
    rig_check(job->rig);
}

static struct job job_begin(bool uses_untold, bool (*optimizers)(void *, uint32_t))
{
    struct job job = {
        .rig = make(CAP_BYTES + GRANULE, uses_untold, optimizers)}; /* one for what is small */
    allocations(job.rig, job.model, MODEL_BLOCKS, MODEL);
    return job;
}

static void job_end(struct job *job)
{
    deaths(job->rig, job->state, STATE_BLOCKS);
    deaths(job->rig, job->model, MODEL_BLOCKS);
    rig_end(job->rig);
}

enum { WARM_UP = 5, STEPS = 10 };

/* What so many steps cost, of which each is 16 MiB over the cap. */
struct cost {
    uint64_t moved_bytes, used_bytes, model_bytes;
};

static struct cost cost_of(struct job *job)
{
    struct ms_spill_stats stats = rig_stats(job->rig).spill;
    return (struct cost){
        .moved_bytes = stats.down_bytes + stats.up_bytes,
        .used_bytes = job->used_bytes,
        .model_bytes = job->model_bytes,
    };
}

static struct cost cost_of_steps(bool uses_untold, bool (*optimizers)(void *, uint32_t))
{
    struct job job = job_begin(uses_untold, optimizers);
    for (int step = 0; step < WARM_UP; step++) {
        train(&job, ACTIVATIONS);
    }
    struct cost before = cost_of(&job);
    for (int step = 0; step < STEPS; step++) {
        train(&job, ACTIVATIONS);
    }
    struct cost after = cost_of(&job);
    job_end(&job);
    return (struct cost){
        .moved_bytes = after.moved_bytes - before.moved_bytes,
        .used_bytes = after.used_bytes - before.used_bytes,
        .model_bytes = after.model_bytes - before.model_bytes,
    };
}

/* Also where it is told when it is used: there and back would cost more. */
Test(states, steps_that_repeat_leave_the_state_where_it_is)
{
    for (int untold = 0; untold < 2; untold++) {
        struct cost cost = cost_of_steps(untold != 0, is_optimizers);
        cr_assert_eq(cost.moved_bytes, 0);
        cr_assert_eq(cost.used_bytes, (uint64_t)STEPS * 2 * STATE_BLOCKS * BLOCK_BYTES);
        cr_assert(untold == 0 || cost.model_bytes == 0);
    }
}

Test(states, without_call_sites_what_is_foretold_goes_and_what_lasts_stays)
{
    uint64_t least = (uint64_t)STEPS * 2 * 16 * MIB;
    struct cost cost = cost_of_steps(true, NULL);
    cr_assert_eq(cost.used_bytes, 0);
    cr_assert_leq(cost.moved_bytes * 10, least * 15, "%lu MiB",
                  (unsigned long)(cost.moved_bytes / MIB));
}

/* Where every use would be told, what none is told of is cold. */
Test(states, what_nobody_uses_goes_where_uses_are_told)
{
    struct cost cost = cost_of_steps(false, NULL);
    cr_assert_eq(cost.moved_bytes, 0);
    cr_assert_gt(cost.model_bytes, 0);
}

/* Two large steps, and some that leave room for all. */
static void check_coming_back(bool uses_untold)
{
    struct job job = job_begin(uses_untold, is_optimizers);
    for (int round = 0; round < 4; round++) {
        train(&job, ACTIVATIONS);
        train(&job, ACTIVATIONS);
        cr_assert_gt(on_host(job.rig, &job.state[1]), 0, "round %d", round);
        for (int step = 0; step < 5; step++) {
            train(&job, 2);
        }
        cr_assert_eq(on_host(job.rig, &job.state[0]) + on_host(job.rig, &job.state[1]), 0,
                     "round %d", round);
    }
    job_end(&job);
}

Test(states, comes_back_once_a_step_had_room_for_it)
{
    check_coming_back(true);
    check_coming_back(false);
}
