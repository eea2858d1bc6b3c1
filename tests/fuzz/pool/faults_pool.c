/* SPDX-License-Identifier: Apache-2.0 */
/* Every call of the device fails once, at every place: short scenarios, drawn from a seed, are
 * played again and again, and each time another call is the one that fails. What is called then
 * says so and changes nothing, everybody goes on, and at the end the device has everything back.
 * Then some of them again, where another call fails as soon as the first has: the one that undoes.
 * And where calls of every kind fail that come within twenty of the first, one or several on end.
 *
 *   faults_pool [--scenarios N] [--seed S] [--pairs N] [--runs N] [--minutes N]
 *
 * --pairs: of each call that fails, one place in so many is played with a second; 0 (the default):
 * none. --runs: of all that can be played with a run of failures after the first, one in so many;
 * 0 (the default): none. --minutes: scenarios without end until the time is over. */
#include <inttypes.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/clock.h"
#include "framework.h"
#include "program.h"
#include "stage.h"

enum { STEPS = 120, VALID_EVERY = 24, KINDS = 6 };

#define WAIT_NS   ((uint64_t)1000000000u)
#define CAP_BYTES (64 * MIB)

#define SPILL_CAP_BYTES (24 * MIB) /* less than what lives for most of the time */

struct fault {
    enum ms_dry_op op;
    uint64_t nth;
    ms_status_t status;
    enum ms_dry_op second_op;          /* fails the second_nth time after the first failure;
                                          MS_DRY_OP_COUNT: any, and second_count calls on end */
    uint64_t second_nth, second_count; /* 0: nothing else fails */
};

struct scene {
    uint64_t seed;
    struct dice dice;
    struct stage stage;
    struct program program;
    struct framework framework;
    bool with_program, with_framework;
    uint64_t calls_before; /* of the kind that fails */
};

static const char *const op_name[MS_DRY_OP_COUNT + 1] = {
    [MS_DRY_ADDRESS_RESERVE] = "address_reserve",
    [MS_DRY_ADDRESS_FREE] = "address_free",
    [MS_DRY_CHUNK_CREATE] = "chunk_create",
    [MS_DRY_CHUNK_RELEASE] = "chunk_release",
    [MS_DRY_MAP] = "map",
    [MS_DRY_SET_ACCESS] = "set_access",
    [MS_DRY_UNMAP] = "unmap",
    [MS_DRY_FENCE_TAKE] = "mark",
    [MS_DRY_FENCE_QUERY] = "mark_query",
    [MS_DRY_FENCE_WAIT] = "mark_wait",
    [MS_DRY_STREAM_WAIT] = "stream_wait",
    [MS_DRY_PLAIN_ALLOC] = "plain_alloc",
    [MS_DRY_PLAIN_FREE] = "plain_free",
    [MS_DRY_HALT] = "halt",
    [MS_DRY_COPY] = "copy",
    [MS_DRY_COPY_WAIT] = "copy_wait",
    [MS_DRY_OP_COUNT] = "any",
};

/* The kinds: blocks alone; a framework's segments; its pages; both against each other, short of
 * memory, with the host to fall back on; without virtual memory management; both, with all that
 * lives spilled and promoted. */
static void begin(struct scene *scene, uint64_t seed)
{
    memset(scene, 0, sizeof(*scene));
    scene->seed = seed;
    scene->dice.state = seed;
    unsigned kind = (unsigned)(seed % KINDS);
    bool views = seed / KINDS % 2 == 1;
    bool short_of_memory = kind == 5 || (views && kind == 0);
    struct stage_config config = {
        .granule_bytes = kind == 4 ? 0 : GRANULE,
        .cap_bytes = short_of_memory ? SPILL_CAP_BYTES : CAP_BYTES,
        .total_bytes = CAP_BYTES + draw(&scene->dice, 2) * CAP_BYTES,
        .host_limit_bytes = kind == 0 ? 0 : CAP_BYTES,
        .spill_limit_bytes = kind == 5 ? CAP_BYTES : 0,
        .wait_limit_ns = WAIT_NS,
        .views = views,
    };
    stage_begin(&scene->stage, &config);
    program_begin(&scene->program, &scene->stage, seed, CAP_BYTES / 6);
    scene->program.most_blocks = 48;
    framework_begin(&scene->framework, &scene->stage, seed,
                    kind == 2 || ((kind == 3 || kind == 5) && draw(&scene->dice, 3) != 0));
    scene->framework.most_tensors = 24;
    scene->framework.largest_bytes = 12 * MIB;
    scene->with_program = kind != 1 && kind != 2;
    scene->with_framework = kind != 0;
}

static void around(struct scene *scene)
{
    struct stage *stage = &scene->stage;
    switch (draw(&scene->dice, 6)) {
    case 4:
        (void)ms_pool_promote(stage->pool, draw(&scene->dice, 32 * MIB));
        break;
    case 0:
        stage->capturing = !stage->capturing && draw(&scene->dice, 3) == 0;
        ms_dry_set_capturing(stage->dry, stage->capturing);
        break;
    case 1:
        (void)ms_pool_trim(stage->pool, draw(&scene->dice, 16 * MIB));
        break;
    case 2:
        (void)ms_pool_refresh_access(stage->pool);
        framework_refresh_access(&scene->framework);
        break;
    case 3:
        stage_replace_stream(stage, (unsigned)draw(&scene->dice, STREAMS));
        break;
    default:
        ms_dry_finish(stage->dry, MS_STREAM_DEVICE, draw(&scene->dice, 20));
        break;
    }
}

static void step(struct scene *scene)
{
    uint64_t kind = draw(&scene->dice, 16);
    if (kind == 0) {
        around(scene);
    } else if (kind == 1 && scene->stage.config.spill_limit_bytes > 0) {
        (void)ms_pool_promote(scene->stage.pool, draw(&scene->dice, 16 * MIB));
    } else if (scene->with_framework && (!scene->with_program || kind < 9)) {
        framework_step(&scene->framework);
    } else {
        program_step(&scene->program);
    }
}

static bool happened(const struct scene *scene, const struct fault *fault)
{
    uint64_t calls = ms_dry_calls(scene->stage.dry, fault->op) - scene->calls_before;
    return fault->nth != 0 && calls >= fault->nth;
}

/* What the scenes moved without any fault: that it was something. */
static uint64_t spilled_bytes, promoted_bytes, views_made;

static void count_moved(struct scene *scene)
{
    struct ms_pool_stats stats;
    ms_pool_stats(scene->stage.pool, &stats);
    spilled_bytes += stats.spill.down_bytes;
    promoted_bytes += stats.spill.up_bytes;
    views_made += stats.views_made;
}

static bool fine(const struct scene *scene, const struct fault *fault, uint64_t at)
{
    const char *wrong = scene->stage.model.wrong;
    if (wrong[0] == '\0') {
        return true;
    }
    (void)fprintf(stderr,
                  "faults_pool: step %" PRIu64 ": %s\n  call %" PRIu64
                  " of %s fails with %d, then call %" PRIu64 " of %s (0: none), %" PRIu64
                  " on end; again: faults_pool --seed %" PRIu64 " --fault %d,%" PRIu64
                  ",%d,%d,%" PRIu64 ",%" PRIu64 "\n",
                  at, wrong, fault->nth, op_name[fault->op], fault->status, fault->second_nth,
                  op_name[fault->second_op], fault->second_count, scene->seed, (int)fault->op,
                  fault->nth, fault->status, (int)fault->second_op, fault->second_nth,
                  fault->second_count);
    return false;
}

/* Plays the scene with one call failing, and goes on after it. *reached: the call was made. */
static bool play(struct scene *scene, uint64_t seed, const struct fault *fault, bool *reached)
{
    begin(scene, seed);
    struct stage *stage = &scene->stage;
    bool good = true;
    *reached = false;
    scene->calls_before = ms_dry_calls(stage->dry, fault->op);
    ms_dry_fail(stage->dry, fault->op, fault->nth, fault->status);
    stage->second.waits = fault->second_nth != 0;
    stage->second.op = fault->second_op;
    stage->second.nth = fault->second_nth;
    stage->second.count = fault->second_count;
    stage->second.status = fault->status;
    for (uint64_t at = 0; at < STEPS && good; at++) {
        stage->armed = fault->nth != 0 && (!*reached || fault->second_nth != 0);
        step(scene);
        bool now = !*reached && happened(scene, fault);
        *reached = *reached || now;
        /* Up to the failure it is the scene that was looked at without one. */
        bool known = fault->nth != 0 && !*reached;
        now = now || (*reached && fault->second_nth != 0);
        stage_compare(stage, now || (!known && at % VALID_EVERY == 0));
        good = fine(scene, fault, at);
    }
    if (good && fault->nth == 0) {
        count_moved(scene);
    }
    if (good) {
        stage_calm(stage);
        framework_leave(&scene->framework);
        program_leave(&scene->program);
        stage_compare(stage, true);
        stage_end(stage);
        good = fine(scene, fault, STEPS);
        model_end(&stage->model);
    }
    return good;
}

/* Every call of one kind, in turn, with one status. */
static bool play_all(struct scene *scene, uint64_t seed, enum ms_dry_op op, ms_status_t status,
                     uint64_t *plays)
{
    bool reached = true;
    bool good = true;
    for (uint64_t nth = 1; reached && good; nth++) {
        struct fault fault = {.op = op, .nth = nth, .status = status};
        good = play(scene, seed, &fault, &reached);
        ++*plays;
    }
    return good;
}

/* What is called to undo, or to make up for, what has failed. */
static const enum ms_dry_op undoing[] = {MS_DRY_UNMAP, MS_DRY_CHUNK_RELEASE, MS_DRY_CHUNK_CREATE,
                                         MS_DRY_MAP,   MS_DRY_SET_ACCESS,    MS_DRY_PLAIN_FREE};

/* Some places of every kind of call, each with a second failure behind it. Not where contents move:
 * two failures on end may lose them, and move.c says so. */
static bool play_pairs(struct scene *scene, uint64_t seed, uint64_t stride, uint64_t *plays)
{
    bool good = true;
    for (size_t k = 0; k < sizeof(undoing) / sizeof(undoing[0]) && stride != 0; k++) {
        for (int op = 0; op < MS_DRY_OP_COUNT && good && seed % KINDS != 5; op++) {
            bool reached = true;
            for (uint64_t nth = 1 + (seed + k) % stride; reached && good; nth += stride) {
                struct fault fault = {.op = (enum ms_dry_op)op,
                                      .nth = nth,
                                      .status = nth % 2 == 0 ? MS_ERR_NO_MEMORY : DEVICE_ERROR,
                                      .second_op = undoing[k],
                                      .second_nth = 1 + nth / 2 % 2};
                good = play(scene, seed, &fault, &reached);
                ++*plays;
            }
        }
    }
    return good;
}

/* Failures of any call within the first twenty after one, so many on end: up to a device that does
 * nothing for a while. */
enum { NEAR_CALLS = 20 };
static const uint64_t run_lengths[] = {1, 2, 3, 5, 8, 40};

/* One in `stride` of what there is. Which one is the seed's. */
static bool play_runs(struct scene *scene, uint64_t seed, uint64_t stride, uint64_t *plays)
{
    enum { LENGTHS = sizeof(run_lengths) / sizeof(run_lengths[0]) };
    bool good = true;
    uint64_t skip = seed;
    for (int op = 0; op < MS_DRY_OP_COUNT && good && stride != 0; op++) {
        bool reached = true;
        for (uint64_t nth = 1; reached && good; nth++) {
            for (uint64_t k = 0; reached && good && k < (uint64_t)NEAR_CALLS * LENGTHS; k++) {
                if (++skip % stride != 0) {
                    continue;
                }
                struct fault fault = {.op = (enum ms_dry_op)op,
                                      .nth = nth,
                                      .status = k % 2 == 0 ? MS_ERR_NO_MEMORY : DEVICE_ERROR,
                                      .second_op = MS_DRY_OP_COUNT,
                                      .second_nth = 1 + k / LENGTHS,
                                      .second_count = run_lengths[k % LENGTHS]};
                good = play(scene, seed, &fault, &reached);
                ++*plays;
            }
        }
    }
    return good;
}

/* ---- the last rung */

enum { TILES = 10 }; /* granules of an arena, one tensor on each */

struct rungs {
    struct stage stage;
    struct ms_block_info arena, first, second;
};

static bool expect(bool holds, const char *what)
{
    if (!holds) {
        (void)fprintf(stderr, "faults_pool: the last rung: %s\n", what);
    }
    return holds;
}

static ms_status_t take_block(struct rungs *rungs, uint64_t bytes, struct ms_block_info *out)
{
    struct ms_request request = {.bytes = bytes, .may_wait = true};
    return ms_pool_alloc(rungs->stage.pool, &request, out);
}

/* The status of the first report that is not MS_OK. */
static ms_status_t report_tiles(struct rungs *rungs, unsigned from, unsigned to, bool allocations)
{
    ms_status_t status = MS_OK;
    for (unsigned k = from; k < to && status == MS_OK; k++) {
        ms_addr_t addr = rungs->arena.addr + k * GRANULE;
        ms_arenas_t *arenas = rungs->stage.arenas;
        status = allocations ? ms_arenas_allocated(arenas, addr, GRANULE, 0, UINT64_MAX)
                             : ms_arenas_freed(arenas, addr, GRANULE, UINT64_MAX);
    }
    return status;
}

static struct ms_pool_stats stats_of(struct rungs *rungs)
{
    struct ms_pool_stats stats;
    ms_pool_stats(rungs->stage.pool, &stats);
    return stats;
}

/* An arena of 20 MiB with one tensor left, and another block of 44 MiB: the cap is reached. */
static bool fill(struct rungs *rungs)
{
    struct stage_config config = {.granule_bytes = GRANULE,
                                  .cap_bytes = CAP_BYTES,
                                  .total_bytes = CAP_BYTES,
                                  .host_limit_bytes = CAP_BYTES,
                                  .wait_limit_ns = WAIT_NS};
    stage_begin(&rungs->stage, &config);
    return expect(take_block(rungs, TILES * GRANULE, &rungs->arena) == MS_OK &&
                      report_tiles(rungs, 0, TILES, true) == MS_OK &&
                      report_tiles(rungs, 1, TILES, false) == MS_OK &&
                      take_block(rungs, CAP_BYTES - TILES * GRANULE, &rungs->first) == MS_OK,
                  "the cap cannot be filled");
}

static bool empty(struct rungs *rungs, bool good)
{
    struct stage *stage = &rungs->stage;
    char why[200] = "";
    good = expect(ms_pool_is_valid(stage->pool, why, sizeof(why)) &&
                      ms_arenas_is_valid(stage->arenas, why, sizeof(why)),
                  why[0] == '\0' ? "valid" : why) &&
           good;
    stage_end(stage);
    good = expect(stage->model.wrong[0] == '\0', stage->model.wrong) && good;
    model_end(&stage->model);
    return good;
}

/* Half of the arena's chunks go to another block; an allocation that finds no device memory any
 * more is served by the host, and that shows. */
static bool served_by_host(struct rungs *rungs)
{
    bool good = fill(rungs);
    uint64_t taken_bytes = TILES / 2 * GRANULE;
    good = good && expect(take_block(rungs, taken_bytes, &rungs->second) == MS_OK,
                          "nothing is taken out of holes");
    struct ms_pool_stats stats = stats_of(rungs);
    good = good && expect(stats.unbacked_bytes == taken_bytes &&
                              stats.host_reserve_bytes + stats.earmarked_bytes >= taken_bytes,
                          "what was taken is not covered");
    good = good && expect(report_tiles(rungs, 1, TILES, true) == MS_OK, "a birth fails");
    stats = stats_of(rungs);
    good = good && expect(stats.host_backed_bytes == taken_bytes && stats.unbacked_bytes == 0 &&
                              stats.peak_host_backed_bytes == taken_bytes,
                          "the statistics do not show what the host serves");
    good = good && expect(ms_dry_accessible(rungs->stage.dry, rungs->arena.addr, TILES * GRANULE),
                          "something live is not accessible");
    return empty(rungs, good);
}

/* Where there is no host memory nothing is taken that it would have to stand for. */
static bool refused_without_host(struct rungs *rungs)
{
    bool good = fill(rungs);
    rungs->stage.host_refuses = true;
    good = good && expect(take_block(rungs, GRANULE, &rungs->second) == MS_ERR_NO_MEMORY &&
                              stats_of(rungs).holes_taken == 0,
                          "holes are taken that nobody could back");
    return empty(rungs, good);
}

/* The obligation is covered by the budget, and then device and host refuse the chunk. */
static bool both_refuse(struct rungs *rungs)
{
    struct stage *stage = &rungs->stage;
    bool good = fill(rungs);
    uint64_t taken_bytes = TILES / 2 * GRANULE;
    good = good && expect(take_block(rungs, taken_bytes, &rungs->second) == MS_OK &&
                              ms_pool_free(stage->pool, rungs->second.addr, 0) == MS_OK &&
                              ms_pool_free(stage->pool, rungs->first.addr, 0) == MS_OK,
                          "nothing is taken out of holes");
    good = good && expect(stage_settle(stage), "the device does not get done");
    (void)ms_pool_trim(stage->pool, 0);
    (void)ms_pool_trim(stage->pool, 0);
    good = good && expect(stats_of(rungs).unbacked_bytes == taken_bytes,
                          "what was taken came back unasked");
    stage->device_refuses = stage->host_refuses = true;
    ms_status_t status = report_tiles(rungs, 1, TILES, true);
    /* Some may be served by what was set aside on the host already. */
    good = good && expect(status == MS_OK || status == MS_ERR_NO_MEMORY,
                          "a birth that nobody can back is answered wrongly");
    good = good && expect(ms_pool_is_valid(stage->pool, NULL, 0) &&
                              ms_arenas_is_valid(stage->arenas, NULL, 0),
                          "the books are wrong after a birth that nobody could back");
    stage->device_refuses = stage->host_refuses = false;
    return empty(rungs, good);
}

static bool last_rung(void)
{
    struct rungs *rungs = malloc(sizeof(*rungs));
    bool good =
        rungs != NULL && served_by_host(rungs) && refused_without_host(rungs) && both_refuse(rungs);
    free(rungs);
    return good;
}

static bool number(const char *text, uint64_t *out)
{
    char *end_of_number = NULL;
    *out = strtoull(text, &end_of_number, 10);
    return end_of_number != text && *end_of_number == '\0';
}

struct options {
    uint64_t scenarios, seed, pairs, runs, minutes;
    struct fault fault; /* the one to play again */
};

/* OP,NTH,STATUS,OP,NTH,COUNT, as a failure prints it. */
static bool fault_of(const char *text, struct fault *out)
{
    int op = 0;
    int second_op = 0;
    int read = sscanf(text, "%d,%" SCNu64 ",%d,%d,%" SCNu64 ",%" SCNu64, &op, &out->nth,
                      &out->status, &second_op, &out->second_nth, &out->second_count);
    out->op = (enum ms_dry_op)op;
    out->second_op = (enum ms_dry_op)second_op;
    return read == 6 && op >= 0 && op < MS_DRY_OP_COUNT && second_op >= 0 &&
           second_op <= MS_DRY_OP_COUNT;
}

static bool parse(int argc, char **argv, struct options *out)
{
    bool good = true;
    for (int k = 1; k < argc && good; k += 2) {
        uint64_t *option = strcmp(argv[k], "--scenarios") == 0 ? &out->scenarios
                           : strcmp(argv[k], "--seed") == 0    ? &out->seed
                           : strcmp(argv[k], "--pairs") == 0   ? &out->pairs
                           : strcmp(argv[k], "--runs") == 0    ? &out->runs
                           : strcmp(argv[k], "--minutes") == 0 ? &out->minutes
                                                               : NULL;
        bool again = strcmp(argv[k], "--fault") == 0;
        good = k + 1 < argc && (again ? fault_of(argv[k + 1], &out->fault)
                                      : option != NULL && number(argv[k + 1], option));
    }
    if (!good) {
        (void)fprintf(stderr, "usage: faults_pool [--scenarios N] [--seed S] [--pairs N] "
                              "[--runs N] [--minutes N] [--fault OP,NTH,STATUS,OP,NTH,COUNT]\n");
    }
    return good;
}

static bool play_scenario(struct scene *scene, const struct options *options, uint64_t seed,
                          uint64_t *plays)
{
    bool reached = false;
    bool good = play(scene, seed, &(struct fault){0}, &reached); /* as it is without a fault */
    for (int op = 0; op < MS_DRY_OP_COUNT && good; op++) {
        good = play_all(scene, seed, (enum ms_dry_op)op, MS_ERR_NO_MEMORY, plays) &&
               play_all(scene, seed, (enum ms_dry_op)op, DEVICE_ERROR, plays);
    }
    return good && play_pairs(scene, seed, options->pairs, plays) &&
           play_runs(scene, seed, options->runs, plays);
}

int main(int argc, char **argv)
{
    struct options options = {.scenarios = 10, .seed = 1};
    if (!parse(argc, argv, &options)) {
        return 2;
    }
    /* Thousands of devices come and go: what one leaves is kept for the next. */
    (void)mallopt(M_TRIM_THRESHOLD, INT_MAX);
    struct scene *scene = malloc(sizeof(*scene));
    if (scene != NULL && options.fault.nth != 0) {
        bool reached = false;
        bool same = play(scene, options.seed, &options.fault, &reached);
        free(scene);
        return same ? 0 : 1;
    }
    uint64_t plays = 0;
    uint64_t scenarios = 0;
    uint64_t until_ns = ms_clock_ns() + options.minutes * 60 * UINT64_C(1000000000);
    bool good = scene != NULL && last_rung();
    while (good &&
           (options.minutes != 0 ? ms_clock_ns() < until_ns : scenarios < options.scenarios)) {
        good = play_scenario(scene, &options, options.seed + scenarios++, &plays);
    }
    free(scene);
    printf("%" PRIu64 " scenarios, played %" PRIu64
           " times with a call of the device failing; %" PRIu64 " granules spilled, %" PRIu64
           " promoted, %" PRIu64 " views made in them\n",
           scenarios, plays, spilled_bytes / GRANULE, promoted_bytes / GRANULE, views_made);
    return good ? 0 : 1;
}
