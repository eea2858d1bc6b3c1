/* SPDX-License-Identifier: Apache-2.0 */
/* What a pair of an allocation and a free costs: hotpath_* [CASE...], of all cases where none is
 * named. One line a case: name, then nanoseconds a pair as one thread sees them, the median of many
 * short rounds.
 *
 *   one_T      one size, T threads
 *   mixed_T    1,024 live at random sizes a thread, one of them replaced at a time, T threads
 *   beside_N   one block allocated and freed while N others live
 *   among_N    one of N live ones replaced at random
 *
 * The program ends at once: what memshim writes at an ordinary end is no part of this. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "subject.h"
#include "timing.h"

#define ONE_BYTES     98304u
#define MIXED_LIVE    1024u
#define MIXED_LOW     9u /* sizes from 2^9 to 2^22 bytes, each power as likely */
#define MIXED_POWERS  13u
#define SMALL_BYTES   512u /* of a million live ones: 512 or 1,024 bytes */
#define PLAN          65536u
#define MIXED_WARM_UP 40000u
#define ROUND_PAIRS   2000u
#define ROUNDS        301u
#define THREADS_MAX   4u
#define MOST_LIVE     1000000u

struct step {
    uint32_t slot, bytes;
};

struct worker {
    pthread_t thread;
    uint64_t random;
    uint32_t live;  /* blocks that stay; 0: one block comes and goes */
    uint32_t bytes; /* of the sizes: one of them, or 0: random powers */
    uint32_t others;
    double median_ns;
};

static pthread_barrier_t start;

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint32_t mixed_bytes(uint64_t random)
{
    const uint32_t power = 1u << (MIXED_LOW + random % MIXED_POWERS);
    return power + (uint32_t)(random >> 32) % power;
}

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void *must_alloc(size_t bytes)
{
    void *block = subject_alloc(bytes);
    if (block == NULL) {
        (void)fprintf(stderr, "%s: out of memory for %zu bytes\n", subject_name, bytes);
        exit(1);
    }
    return block;
}

static void come_and_go(uint32_t bytes)
{
    for (uint32_t i = 0; i < ROUND_PAIRS; i++) {
        subject_free(must_alloc(bytes));
    }
}

static void replace(void **blocks, const struct step *plan, uint32_t *next, uint32_t pairs)
{
    for (uint32_t i = 0; i < pairs; i++) {
        const struct step *step = &plan[*next];
        subject_free(blocks[step->slot]);
        blocks[step->slot] = must_alloc(step->bytes);
        *next = (*next + 1) % PLAN;
    }
}

static struct step *make_plan(struct worker *worker)
{
    struct step *plan = malloc(PLAN * sizeof *plan);
    for (uint32_t i = 0; plan != NULL && i < PLAN; i++) {
        uint64_t random = next_random(&worker->random);
        plan[i].slot = (uint32_t)(random >> 20) % worker->live;
        plan[i].bytes = worker->bytes ? worker->bytes * (1 + random % 2) : mixed_bytes(random);
    }
    return plan;
}

/* Called by each worker, all at once. */
static double median_of_rounds(struct worker *worker, void **blocks, const struct step *plan)
{
    static _Thread_local double rounds[ROUNDS];
    uint32_t next = 0;
    if (worker->live != 0) {
        replace(blocks, plan, &next, worker->bytes ? ROUND_PAIRS : MIXED_WARM_UP);
    }
    (void)pthread_barrier_wait(&start);
    for (uint32_t r = 0; r < ROUNDS; r++) {
        uint64_t before = now_ns();
        if (worker->live != 0) {
            replace(blocks, plan, &next, ROUND_PAIRS);
        } else {
            come_and_go(worker->bytes);
        }
        rounds[r] = (double)(now_ns() - before) / ROUND_PAIRS;
    }
    qsort(rounds, ROUNDS, sizeof rounds[0], by_size);
    return rounds[ROUNDS / 2];
}

static void **make_live(struct worker *worker, uint32_t count)
{
    void **blocks = calloc(count + 1, sizeof *blocks);
    for (uint32_t i = 0; blocks != NULL && i < count; i++) {
        uint64_t random = next_random(&worker->random);
        blocks[i] =
            must_alloc(worker->bytes ? SMALL_BYTES * (1 + random % 2) : mixed_bytes(random));
    }
    return blocks;
}

static void *work(void *ctx)
{
    struct worker *worker = ctx;
    subject_begin_thread();
    uint32_t count = worker->live + worker->others;
    void **blocks = make_live(worker, count);
    struct step *plan = worker->live != 0 ? make_plan(worker) : NULL;
    if (blocks == NULL || (worker->live != 0 && plan == NULL)) {
        exit(1);
    }
    worker->median_ns = median_of_rounds(worker, blocks, plan);
    for (uint32_t i = 0; i < count; i++) {
        subject_free(blocks[i]);
    }
    free(blocks);
    free(plan);
    return NULL;
}

static void measure(const char *name, struct worker like, unsigned threads)
{
    struct worker workers[THREADS_MAX];
    double sum = 0;
    (void)pthread_barrier_init(&start, NULL, threads);
    for (unsigned t = 0; t < threads; t++) {
        workers[t] = like;
        workers[t].random = 0x9e3779b97f4a7c15u * (t + 1);
        if (pthread_create(&workers[t].thread, NULL, work, &workers[t]) != 0) {
            exit(1);
        }
    }
    for (unsigned t = 0; t < threads; t++) {
        (void)pthread_join(workers[t].thread, NULL);
        sum += workers[t].median_ns;
    }
    (void)pthread_barrier_destroy(&start);
    (void)printf("%s %.1f\n", name, sum / threads);
    (void)fflush(stdout);
}

static bool is_wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return true;
        }
    }
    return argc == 1;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        struct worker like;
        unsigned threads;
    } cases[] = {
        {"one_1", {.bytes = ONE_BYTES}, 1},
        {"one_2", {.bytes = ONE_BYTES}, 2},
        {"one_4", {.bytes = ONE_BYTES}, 4},
        {"mixed_1", {.live = MIXED_LIVE}, 1},
        {"mixed_2", {.live = MIXED_LIVE}, 2},
        {"mixed_4", {.live = MIXED_LIVE}, 4},
        {"beside_1000", {.bytes = SMALL_BYTES, .others = 1000}, 1},
        {"beside_1000000", {.bytes = SMALL_BYTES, .others = MOST_LIVE}, 1},
        {"among_1000", {.bytes = SMALL_BYTES, .live = 1000}, 1},
        {"among_1000000", {.bytes = SMALL_BYTES, .live = MOST_LIVE}, 1},
    };
    subject_begin();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (is_wanted(cases[i].name, argc, argv)) {
            measure(cases[i].name, cases[i].like, cases[i].threads);
        }
    }
    _exit(0);
}
