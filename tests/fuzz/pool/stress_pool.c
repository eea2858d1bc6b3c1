/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads on one pool under a tight cap, each a program and a framework of its own: the cap,
 * the books, the ownership of every byte and the backing of everything live hold. From time to time
 * all stand still, everything is compared with the model, and the surroundings change. A program of
 * its own, without a test framework, so that it also runs under the thread sanitizer.
 *
 *   stress_pool [--rounds N] [--seed S]   rounds of STEPS steps of each thread */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework.h"
#include "program.h"
#include "stage.h"

enum { THREADS = 6, STEPS = 400, UNFINISHED_MOST = 200 };

#define CAP_BYTES (96 * MIB)
#define WAIT_NS   ((uint64_t)100000)

struct worker {
    pthread_t thread;
    uint64_t rounds;
    struct dice dice;
    struct program program;
    struct framework framework;
};

static struct stage stage;
static struct worker worker[THREADS];
static pthread_barrier_t standstill;
static struct dice chance;

/* What changes between two rounds; nobody else plays meanwhile. */
static void change(void)
{
    stage_compare(&stage, true);
    stage_calm(&stage);
    switch (draw(&chance, 8)) {
    case 0:
        stage.capturing = true;
        ms_dry_set_capturing(stage.dry, true);
        break;
    case 1:
        stage.stalled = true;
        ms_dry_set_stalled(stage.dry, true);
        break;
    case 2:
        stage.device_refuses = true;
        break;
    case 3:
        stage.host_refuses = true;
        break;
    case 4:
        stage.armed = true;
        ms_dry_fail(stage.dry, (enum ms_dry_op)draw(&chance, MS_DRY_OP_COUNT),
                    draw(&chance, 40) + 1, draw(&chance, 2) == 0 ? MS_ERR_NO_MEMORY : DEVICE_ERROR);
        break;
    case 6:
        stage.halt_refuses = true;
        break;
    case 5:
        stage_replace_stream(&stage, (unsigned)draw(&chance, STREAMS));
        break;
    default:
        break;
    }
}

static void step(struct worker *self)
{
    struct ms_dry_stats device;
    ms_dry_stats(stage.dry, &device);
    if (device.unfinished_work > UNFINISHED_MOST) {
        ms_dry_finish(stage.dry, MS_STREAM_DEVICE, 10);
    }
    uint64_t kind = draw(&self->dice, 100);
    if (kind < 50) {
        program_step(&self->program);
    } else if (kind < 98) {
        framework_step(&self->framework);
    } else if (kind == 98 && draw(&self->dice, 2) == 0) {
        (void)ms_pool_promote(stage.pool, draw(&self->dice, 32 * MIB));
    } else if (kind == 98 && draw(&self->dice, 2) == 0) {
        (void)(ms_pool_step(stage.pool) || ms_pool_promote(stage.pool, UINT64_MAX));
    } else if (kind == 98) {
        (void)ms_pool_promote_ahead(stage.pool);
        (void)ms_pool_trim(stage.pool, draw(&self->dice, 32 * MIB));
    } else {
        ms_dry_advance(stage.dry, draw(&self->dice, 100000));
    }
}

static void *play(void *argument)
{
    struct worker *self = argument;
    for (uint64_t round = 0; round < self->rounds; round++) {
        for (int k = 0; k < STEPS; k++) {
            step(self);
        }
        (void)pthread_barrier_wait(&standstill);
        if (self == worker) {
            change();
        }
        (void)pthread_barrier_wait(&standstill);
    }
    return NULL;
}

static void begin(uint64_t seed)
{
    chance.state = seed;
    struct stage_config config = {
        .granule_bytes = GRANULE,
        .cap_bytes = CAP_BYTES,
        .total_bytes = CAP_BYTES + draw(&chance, 2) * CAP_BYTES,
        .host_limit_bytes = CAP_BYTES,
        .spill_limit_bytes = seed % 2 == 0 ? CAP_BYTES : 0,
        .spill_choice = &ms_spill_choice_predict,
        .wait_limit_ns = WAIT_NS,
        .views = seed / 2 % 2 == 1,
        .page_bytes = seed / 4 % 2 == 1 ? 4096 : 0,
        .crowded = true,
    };
    stage_begin(&stage, &config);
    for (unsigned k = 0; k < THREADS; k++) {
        worker[k].dice.state = seed * THREADS + k;
        program_begin(&worker[k].program, &stage, draw(&chance, UINT64_MAX), CAP_BYTES / 24);
        worker[k].program.most_blocks = 40;
        framework_begin(&worker[k].framework, &stage, seed * THREADS + k, k % 2 == 0);
        worker[k].framework.most_tensors = 40;
        worker[k].framework.largest_bytes = 6 * MIB;
    }
}

static bool number(const char *text, uint64_t *out)
{
    char *end_of_number = NULL;
    *out = strtoull(text, &end_of_number, 10);
    return end_of_number != text && *end_of_number == '\0';
}

int main(int argc, char **argv)
{
    uint64_t rounds = 60;
    uint64_t seed = 1;
    for (int k = 1; k < argc; k += 2) {
        uint64_t *option = strcmp(argv[k], "--rounds") == 0 ? &rounds
                           : strcmp(argv[k], "--seed") == 0 ? &seed
                                                            : NULL;
        if (option == NULL || k + 1 == argc || !number(argv[k + 1], option)) {
            (void)fprintf(stderr, "usage: stress_pool [--rounds N] [--seed S], not \"%s\"\n",
                          argv[k]);
            return 2;
        }
    }
    begin(seed);
    if (pthread_barrier_init(&standstill, NULL, THREADS) != 0) {
        return 2;
    }
    for (unsigned k = 0; k < THREADS; k++) {
        worker[k].rounds = rounds;
        if (pthread_create(&worker[k].thread, NULL, play, &worker[k]) != 0) {
            abort(); /* the others would wait for it for ever */
        }
    }
    for (unsigned k = 0; k < THREADS; k++) {
        pthread_join(worker[k].thread, NULL);
    }
    stage_calm(&stage);
    for (unsigned k = 0; k < THREADS; k++) {
        framework_leave(&worker[k].framework);
        program_leave(&worker[k].program);
    }
    stage_compare(&stage, true);
    struct ms_pool_stats stats;
    ms_pool_stats(stage.pool, &stats);
    stage_end(&stage);
    printf("%d threads, %" PRIu64 " allocations, %" PRIu64 " births, %" PRIu64
           " chunks moved, %" PRIu64 " taken out of holes, %" PRIu64 " put back, %" PRIu64
           " spilled, %" PRIu64 " promoted\n",
           THREADS, stage.served, stage.allocations, stats.chunks_moved, stats.holes_taken,
           stats.holes_backed, stats.spill.down_bytes / GRANULE, stats.spill.up_bytes / GRANULE);
    if (stage.model.wrong[0] != '\0') {
        (void)fflush(stdout); /* the last line says what is wrong */
        (void)fprintf(stderr,
                      "again, with luck: stress_pool --seed %" PRIu64 " --rounds %" PRIu64
                      "\nstress_pool: %s\n",
                      seed, rounds, stage.model.wrong);
    }
    bool good = stage.model.wrong[0] == '\0';
    model_end(&stage.model);
    return good ? 0 : 1;
}
