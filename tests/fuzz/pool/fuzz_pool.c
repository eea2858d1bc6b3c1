/* SPDX-License-Identifier: Apache-2.0 */
/* Random calls on a pool over the dry device, compared at every step with a naive model: no
 * overlap, alignment, every live byte backed by the chunk that it was born on, nothing taken from
 * what is frozen or pinned, the order of work respected, the budget exact, every obligation
 * covered, the events a full account, and no failure while the request fits. The dry device watches
 * the contracts and every premature reuse; the model watches every call that reaches the device.
 *
 *   fuzz_pool [--ops N] [--seed S] [--world N]
 *
 * A run is a row of worlds; each has its own device, cap and mix of calls, all from the seed. Where
 * something is wrong, the command that repeats it is printed. --world: operations of each world. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework.h"
#include "program.h"
#include "stage.h"

#define WAIT_NS ((uint64_t)10000000000u) /* virtual, so that no hiccup of the host runs it out */

enum { WORLD_OPS = 10000, VALID_EVERY = 250, FRAMEWORKS = 2, UNFINISHED_MOST = 100 };

struct world {
    uint64_t seed, op, ops;
    struct dice dice;
    struct stage stage;
    struct program program;
    struct framework framework[FRAMEWORKS];
    size_t frameworks;
    unsigned framework_share; /* of 100 steps */
    uint32_t around;          /* a bit for each kind of what goes on around it in this world */
};

struct score {
    uint64_t served, refused, allocations, moved, taken, backed, on_host, spilled, promoted, views;
};

/* ---- what happens around the pool */

static void arm(struct world *world)
{
    struct stage *stage = &world->stage;
    if (stage->armed) {
        for (int op = 0; op < MS_DRY_OP_COUNT; op++) {
            ms_dry_fail(stage->dry, (enum ms_dry_op)op, 0, MS_OK);
        }
    } else {
        ms_dry_fail(stage->dry, (enum ms_dry_op)draw(&world->dice, MS_DRY_OP_COUNT),
                    draw(&world->dice, 6) + 1,
                    draw(&world->dice, 2) == 0 ? MS_ERR_NO_MEMORY : DEVICE_ERROR);
    }
    stage->armed = !stage->armed;
}

static void charge_elsewhere(struct world *world)
{
    struct stage *stage = &world->stage;
    if (stage->forwarded_bytes != 0) {
        ms_budget_discharge(&stage->budget, MS_OWNER_FORWARDED, stage->forwarded_bytes);
        stage->forwarded_bytes = 0;
    } else {
        uint64_t bytes = draw(&world->dice, 40 * MIB) + 1;
        if (ms_budget_charge(&stage->budget, MS_OWNER_FORWARDED, bytes)) {
            stage->forwarded_bytes = bytes;
        }
    }
}

/* The driver takes memory by itself, whether there is room or not. */
static void impose(struct world *world)
{
    struct stage *stage = &world->stage;
    uint64_t bytes = draw(&world->dice, 24 * MIB);
    if (stage->imposed_bytes != 0) {
        ms_budget_discharge(&stage->budget, MS_OWNER_CONTEXT, stage->imposed_bytes);
        stage->imposed_bytes = 0;
    } else if (draw(&world->dice, 4) == 0) {
        ms_budget_impose(&stage->budget, MS_OWNER_CONTEXT, bytes);
        stage->imposed_bytes = bytes;
    }
}

/* The cap moves, never below what is charged and earmarked. */
static void move_cap(struct world *world)
{
    struct ms_budget *budget = &world->stage.budget;
    uint64_t free_bytes = ms_budget_free_bytes(budget);
    uint64_t cap_bytes = atomic_load(&budget->cap_bytes) - draw(&world->dice, free_bytes + 1);
    cap_bytes += draw(&world->dice, 48 * MIB);
    uint64_t most_bytes = world->stage.config.cap_bytes;
    if (cap_bytes > most_bytes) {
        cap_bytes = most_bytes;
    }
    atomic_store(&budget->cap_bytes, cap_bytes);
}

/* Somebody else needs room in the budget. */
static void make_room(struct world *world, uint64_t bytes)
{
    struct stage *stage = &world->stage;
    bool may_wait = !stage->capturing && draw(&world->dice, 2) == 0;
    bool made = ms_pool_make_room(stage->pool, bytes, may_wait);
    if (made != (ms_budget_free_bytes(&stage->budget) >= bytes)) {
        model_wrong(&stage->model, "room for %lu bytes: said %d, %lu free", (unsigned long)bytes,
                    made, (unsigned long)ms_budget_free_bytes(&stage->budget));
    }
}

static void refresh_access(struct world *world)
{
    struct stage *stage = &world->stage;
    ms_status_t status = ms_pool_refresh_access(stage->pool);
    if (status != MS_OK && !stage_excuses(stage, status)) {
        model_wrong(&stage->model, "access is answered with %d", status);
    }
    for (size_t k = 0; k < world->frameworks; k++) {
        framework_refresh_access(&world->framework[k]);
    }
}

enum around {
    AROUND_CAPTURE,
    AROUND_STALL,
    AROUND_FAULT,
    AROUND_CHARGE,
    AROUND_IMPOSE,
    AROUND_CAP,
    AROUND_DEVICE_REFUSES,
    AROUND_HOST_REFUSES,
    AROUND_HALT_REFUSES,
    AROUND_STREAM,
    AROUND_TRIM,
    AROUND_ROOM,
    AROUND_ACCESS,
    AROUND_PROMOTE,
    AROUND_FINISH,
    AROUND_TIME,
    AROUND_COUNT
};

static void trouble(struct world *world, enum around kind)
{
    struct stage *stage = &world->stage;
    bool begins = draw(&world->dice, 3) == 0;
    switch (kind) {
    case AROUND_CAPTURE:
        stage->capturing = !stage->capturing && begins;
        ms_dry_set_capturing(stage->dry, stage->capturing);
        break;
    case AROUND_STALL:
        stage->stalled = !stage->stalled && begins;
        ms_dry_set_stalled(stage->dry, stage->stalled);
        break;
    case AROUND_FAULT:
        arm(world);
        break;
    case AROUND_CHARGE:
        charge_elsewhere(world);
        break;
    case AROUND_IMPOSE:
        impose(world);
        break;
    case AROUND_CAP:
        move_cap(world);
        break;
    case AROUND_DEVICE_REFUSES:
        stage->device_refuses = !stage->device_refuses && begins;
        break;
    case AROUND_HALT_REFUSES:
        stage->halt_refuses = !stage->halt_refuses && begins;
        break;
    default:
        stage->host_refuses = !stage->host_refuses && begins;
        break;
    }
}

static void surroundings(struct world *world)
{
    struct stage *stage = &world->stage;
    enum around kind = (enum around)draw(&world->dice, AROUND_COUNT);
    uint64_t bytes = draw(&world->dice, 64 * MIB);
    if ((world->around >> kind & 1) == 0) {
        kind = AROUND_TIME;
    }
    switch (kind) {
    case AROUND_STREAM:
        stage_replace_stream(stage, (unsigned)draw(&world->dice, STREAMS));
        break;
    case AROUND_TRIM:
        (void)ms_pool_trim(stage->pool, bytes);
        break;
    case AROUND_ROOM:
        make_room(world, bytes);
        break;
    case AROUND_ACCESS:
        refresh_access(world);
        break;
    case AROUND_PROMOTE:
        (void)ms_pool_promote(stage->pool, bytes);
        break;
    case AROUND_FINISH:
        ms_dry_finish(stage->dry, MS_STREAM_DEVICE, UINT64_MAX);
        break;
    case AROUND_TIME:
        ms_dry_advance(stage->dry, draw(&world->dice, 200000));
        ms_dry_finish(stage->dry, stage->stream[draw(&world->dice, STREAMS)],
                      draw(&world->dice, 8));
        break;
    default:
        trouble(world, kind);
        break;
    }
}

static void step(struct world *world)
{
    struct stage *stage = &world->stage;
    uint64_t kind = draw(&world->dice, 100);
    struct ms_dry_stats device;
    ms_dry_stats(stage->dry, &device);
    if (device.unfinished_work > UNFINISHED_MOST) {
        ms_dry_finish(stage->dry, MS_STREAM_DEVICE, 10);
    }
    stage->tells_lies = world->seed % 4 == 0 && world->op > world->ops / 8 * 7;
    if (kind == 99 && stage->config.spill_limit_bytes > 0) {
        (void)ms_pool_promote(stage->pool, draw(&world->dice, 32 * MIB));
    } else if (kind == 98 && stage->config.spill_limit_bytes > 0 && draw(&world->dice, 4) == 0) {
        (void)(ms_pool_step(stage->pool) || ms_pool_promote(stage->pool, UINT64_MAX));
    } else if (kind < 6) {
        surroundings(world);
    } else if (kind < 6 + world->framework_share) {
        framework_step(&world->framework[draw(&world->dice, world->frameworks)]);
    } else {
        program_step(&world->program);
    }
    (void)ms_pool_promote_ahead(stage->pool);
}

/* ---- worlds */

static const struct ms_choice *some_choice(struct dice *dice)
{
    const struct ms_choice *choices[] = {NULL, &ms_choice_default, &ms_choice_oldest,
                                         &ms_choice_highest, &ms_choice_gap};
    return choices[draw(dice, sizeof(choices) / sizeof(choices[0]))];
}

static void begin(struct world *world, uint64_t seed, uint64_t ops)
{
    memset(world, 0, sizeof(*world));
    world->seed = seed;
    world->ops = ops;
    world->dice.state = seed;
    struct dice *dice = &world->dice;
    bool plain = draw(dice, 12) == 0;
    uint64_t cap_bytes = (32 + draw(dice, 200)) * MIB;
    struct stage_config config = {
        .granule_bytes = plain ? 0 : GRANULE,
        .cap_bytes = cap_bytes,
        .total_bytes = draw(dice, 3) == 0 ? cap_bytes + 64 * MIB : 256 * MIB,
        .host_limit_bytes = draw(dice, 4) == 0 ? 0 : draw(dice, 256) * MIB,
        .choice = some_choice(dice),
        .costs = &ms_dry_default_costs,
        .wait_limit_ns = WAIT_NS,
        .views = seed / 2 % 2 == 1,
        .page_bytes = seed / 4 % 2 == 1 ? 4096 : 0,
    };
    if (draw(dice, 2) == 0) {
        config.host_limit_bytes += draw(dice, 2) * cap_bytes;
        config.spill_limit_bytes = draw(dice, config.host_limit_bytes / MIB + 1) * MIB;
        config.spill_choice = draw(dice, 2) == 0 ? &ms_spill_choice_predict : NULL;
    }
    stage_begin(&world->stage, &config);
    program_begin(&world->program, &world->stage, draw(dice, UINT64_MAX),
                  cap_bytes / (1 + draw(dice, 24)));
    world->program.most_blocks = 16 + draw(dice, PROGRAM_BLOCKS - 16);
    world->frameworks = 1 + draw(dice, FRAMEWORKS);
    /* Not everything everywhere: one kind of trouble hides what another would show. */
    for (unsigned kind = 0; kind < AROUND_COUNT; kind++) {
        world->around |= draw(dice, 8) < (kind <= AROUND_HALT_REFUSES ? 3 : 6) ? 1u << kind : 0;
    }
    world->framework_share = (unsigned)draw(dice, 6) * 18;
    for (size_t k = 0; k < world->frameworks; k++) {
        framework_begin(&world->framework[k], &world->stage, seed * FRAMEWORKS + k,
                        !plain && draw(dice, 2) == 0);
    }
}

static void count(struct world *world, struct score *score)
{
    struct ms_pool_stats stats;
    ms_pool_stats(world->stage.pool, &stats);
    score->served += world->stage.served;
    score->refused += world->stage.refused;
    score->allocations += world->stage.allocations;
    score->moved += stats.chunks_moved;
    score->taken += stats.holes_taken;
    score->backed += stats.holes_backed;
    score->spilled += stats.spill.down_bytes / GRANULE;
    score->promoted += stats.spill.up_bytes / GRANULE;
    score->views += stats.views_made;
    score->on_host += stats.peak_host_backed_bytes != 0 ? 1 : 0;
}

static bool fine(const struct world *world)
{
    return world->stage.model.wrong[0] == '\0';
}

/* At the end everybody leaves, or, in every other world, the pool goes with all that it holds. */
static void end(struct world *world)
{
    struct stage *stage = &world->stage;
    stage_calm(stage);
    for (size_t k = 0; k < world->frameworks; k++) {
        framework_leave(&world->framework[k]);
    }
    if (world->seed % 2 == 0) {
        program_leave(&world->program);
    }
    stage_compare(stage, true);
    stage_end(stage);
}

/* Plays until `until`, of a world of `ops` operations, and looks at everything now and then. */
static bool run_world(struct world *world, uint64_t seed, uint64_t ops, uint64_t until,
                      uint64_t valid_every, struct score *score)
{
    begin(world, seed, ops);
    bool good = true;
    for (world->op = 0; world->op < until && good; world->op++) {
        step(world);
        stage_compare(&world->stage, world->op % valid_every == 0 || world->op + 1 == until);
        good = fine(world);
    }
    if (good) {
        count(world, score);
        end(world);
        good = fine(world);
    }
    return good;
}

/* Says how to play it again. The second time everything is looked at after every operation, so that
 * the first that did wrong is the one named. */
static void tell_wrong(struct world *world, uint64_t until)
{
    uint64_t seed = world->seed;
    uint64_t ops = world->ops;
    char wrong[sizeof(world->stage.model.wrong)];
    struct score score = {0};
    (void)snprintf(wrong, sizeof(wrong), "%s", world->stage.model.wrong);
    bool good = run_world(world, seed, ops, until, 1, &score);
    (void)fprintf(stderr,
                  "fuzz_pool: %s\n  looked at closely: %s\n  again: fuzz_pool --seed %" PRIu64
                  " --world %" PRIu64 " --ops %" PRIu64 "\n",
                  wrong, good ? "nothing" : world->stage.model.wrong, seed, ops, world->op);
}

static bool number(const char *text, uint64_t *out)
{
    char *end_of_number = NULL;
    *out = strtoull(text, &end_of_number, 10);
    return end_of_number != text && *end_of_number == '\0';
}

int main(int argc, char **argv)
{
    uint64_t ops = 1000000;
    uint64_t seed = 1;
    uint64_t world_ops = WORLD_OPS;
    for (int k = 1; k < argc; k += 2) {
        uint64_t *option = strcmp(argv[k], "--ops") == 0     ? &ops
                           : strcmp(argv[k], "--seed") == 0  ? &seed
                           : strcmp(argv[k], "--world") == 0 ? &world_ops
                                                             : NULL;
        if (option == NULL || k + 1 == argc || !number(argv[k + 1], option) || world_ops == 0) {
            (void)fprintf(stderr, "usage: fuzz_pool [--ops N] [--seed S] [--world N], not \"%s\"\n",
                          argv[k]);
            return 2;
        }
    }
    struct world *world = malloc(sizeof(*world));
    if (world == NULL) {
        return 2;
    }
    struct score score = {0};
    bool good = true;
    for (uint64_t done = 0; done < ops && good; done += world_ops, seed++) {
        uint64_t until = ops - done < world_ops ? ops - done : world_ops;
        good = run_world(world, seed, world_ops, until, VALID_EVERY, &score);
        if (!good) {
            tell_wrong(world, until);
        }
        model_end(&world->stage.model);
    }
    free(world);
    printf("%" PRIu64 " operations: %" PRIu64 " allocations served, %" PRIu64 " refused, %" PRIu64
           " chunks moved; %" PRIu64 " births, %" PRIu64 " chunks taken out of holes, %" PRIu64
           " put back, %" PRIu64 " worlds with some on the host, %" PRIu64
           " granules spilled, %" PRIu64 " promoted, %" PRIu64 " views made\n",
           ops, score.served, score.refused, score.moved, score.allocations, score.taken,
           score.backed, score.on_host, score.spilled, score.promoted, score.views);
    return good ? 0 : 1;
}
