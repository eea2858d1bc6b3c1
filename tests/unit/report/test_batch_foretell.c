/* SPDX-License-Identifier: Apache-2.0 */
/* The search for the largest batch, over runs whose requests follow the batch, and whose needs do
 * so only in the steps of PyTorch's segments. The truth is that of the same run, replayed. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "report/fit/batch_foretell.h"
#include "report/replay/course.h"
#include "report/replay/torch_alone.h"

#define KIB       (UINT64_C(1) << 10)
#define MIB       (UINT64_C(1) << 20)
#define PLACE     (UINT64_C(1) << 40)
#define MOST_RUNS 6

struct layer {
    uint64_t fixed, each; /* bytes of a tensor: fixed + each x batch */
};

/* Weights stay; a layer's activations are kept until the way back, its temporary one is not. */
static struct ms_recording *record(const struct layer *layers, size_t count, uint64_t batch,
                                   bool odd)
{
    struct ms_recording *recording = ms_recording_new(0), *course;
    uint64_t id = 1;

    cr_assert_null(ms_recording_reserve(recording, 0, 1, PLACE, PLACE).field);
    cr_assert_null(ms_recording_map(recording, 0, 1, PLACE, PLACE).field);
    for (size_t i = 0; i < count; i++) {
        const uint64_t bytes = (layers[i].fixed + layers[i].each * batch + 511) / 512 * 512;

        for (uint64_t kept = 0; kept < 2; kept++, id++) {
            cr_assert_null(ms_recording_allocated(recording, 0, id, PLACE + id * 4096 * MIB,
                                                  kept ? bytes : bytes / 1024 * 512 + 512, 0, 0)
                               .field);
        }
        cr_assert_null(ms_recording_freed(recording, 0, id - 2).field);
        if (odd && batch % 2 == 1) {
            cr_assert_null(
                ms_recording_allocated(recording, 0, id, PLACE + id * 4096 * MIB, 512, 0, 0).field);
            id++;
        }
    }
    course = ms_course_of(recording);
    ms_recording_delete(recording);
    cr_assert_not_null(course);
    return course;
}

static bool fits(const struct layer *layers, size_t count, uint64_t batch, bool odd, uint64_t cap)
{
    struct ms_recording *course = record(layers, count, batch, odd);
    struct ms_torch_alone alone;

    ms_torch_alone_run(course, cap, false, &alone);
    ms_recording_delete(course);
    return !alone.failed;
}

static uint64_t next_of(const struct ms_batch_run *runs, size_t made, uint64_t cap)
{
    const size_t most = made < MOST_RUNS ? MOST_RUNS : made + 1;

    return ms_batch_foretell(runs, made, &(struct ms_batch_limits){cap, 2, most});
}

/* How many runs it takes to settle it, from two. */
static size_t search(const struct layer *layers, size_t count, uint64_t first, bool odd,
                     uint64_t cap)
{
    struct ms_batch_run runs[16] = {0};
    struct ms_batch_bounds bounds;
    size_t made = 0;
    uint64_t next = first;

    for (; next > 0; next = made == 1 ? 2 * first : next_of(runs, made, cap)) {
        struct ms_recording *course = record(layers, count, next, odd);

        cr_assert_lt(made, 16);
        runs[made] =
            (struct ms_batch_run){.batch = next, .fits = fits(layers, count, next, odd, cap)};
        cr_assert(ms_batch_run_add(&runs[made++], 0, course));
    }
    bounds = ms_batch_runs_bounds(runs, made);
    cr_assert_eq(bounds.too_big, bounds.fits + 1);
    for (size_t i = 0; i < made; i++) {
        ms_batch_run_free(&runs[i]);
    }
    return made;
}

/* Small tensors beside large ones: they cross from one pool to the other as the batch grows, and
 * PyTorch's reserved bytes jump by 20 MiB. */
static const struct layer small_samples[] = {{4 * MIB, 0},       {0, 40 * KIB},  {3000, 77},
                                             {100, 130 * KIB},   {MIB, 0},       {0, 9 * KIB},
                                             {20000, 300 * KIB}, {0, 512 * KIB}, {0, 25 * KIB}};
#define SMALL_SAMPLES (sizeof(small_samples) / sizeof(*small_samples))

Test(batch_foretell, small_samples)
{
    for (uint64_t cap = 40 * MIB; cap < 400 * MIB; cap += 7 * MIB) {
        const size_t runs = search(small_samples, SMALL_SAMPLES, 8, false, cap);

        cr_assert_leq(runs, MOST_RUNS, "%zu runs on %lu MiB", runs, cap / MIB);
    }
}

Test(batch_foretell, not_even_one)
{
    cr_assert_leq(search(small_samples, SMALL_SAMPLES, 8, false, 5 * MIB), 3);
}

/* Runs that do not ask for the same: a line through what they need still ends at the truth. */
Test(batch_foretell, courses_that_differ)
{
    cr_assert_leq(search(small_samples, SMALL_SAMPLES, 7, true, 300 * MIB), 16);
}

/* To a MiB. */
static uint64_t least_cap(const struct layer *layers, size_t count, uint64_t batch)
{
    uint64_t cap = MIB;

    while (!fits(layers, count, batch, false, cap)) {
        cap += MIB;
    }
    return cap;
}

/* What a job makes of `batch` that draws its own, up to that, anew in each of its three steps. */
static uint64_t drawn(uint64_t batch, uint64_t seed)
{
    uint64_t most = 0, state = (batch * 1000 + seed) * UINT64_C(0x9E3779B97F4A7C15);

    for (int step = 0; step < 3; step++) {
        state = (state ^ (state >> 31)) * UINT64_C(0xD6E8FEB86659FD93);

        const uint64_t one = batch / 4 + (state >> 33) % (batch - batch / 4 + 1);

        most = one > most ? one : most;
    }
    return most;
}

/* Nothing foretells its needs. Of nearly all such jobs six runs show that, or end beside each
 * other. */
Test(batch_foretell, batches_drawn_anew)
{
    static const struct layer layers[] = {{64 * MIB, 0}, {0, 3 * MIB}, {0, MIB}};
    unsigned shown = 0, settled = 0;

    for (uint64_t seed = 0; seed < 100; seed++) {
        const uint64_t first = drawn(32, seed), second = drawn(64, seed);
        const uint64_t more = second > first ? (second - first) * 10 / 32 : 0;
        const uint64_t cap = least_cap(layers, 3, second + more);
        struct ms_batch_run runs[MOST_RUNS] = {0};
        size_t made = 0;
        uint64_t next = 32;

        for (; next > 0; next = made == MOST_RUNS ? 0 : made == 1 ? 64 : next_of(runs, made, cap)) {
            const uint64_t batch = drawn(next, seed);

            runs[made] = (struct ms_batch_run){.batch = next,
                                               .fits = fits(layers, 3, batch, false, cap),
                                               .live_bytes = 4 * batch * MIB,
                                               .largest_bytes = 3 * batch * MIB};
            cr_assert(ms_batch_run_add(&runs[made++], 0, record(layers, 3, batch, false)));
        }

        const struct ms_batch_bounds bounds = ms_batch_runs_bounds(runs, made);
        struct ms_batch_contrast contrast;

        shown += ms_batch_runs_contrast(runs, made, &contrast);
        settled += bounds.too_big == bounds.fits + 1;
        while (made > 0) {
            ms_batch_run_free(&runs[--made]);
        }
    }
    cr_assert_geq(shown, 80, "%u", shown);
    cr_assert_geq(shown + settled, 95, "%u, %u", shown, settled);
}

/* The largest difference is told. What libraries take, and the parts that a loop makes of a batch,
 * prove nothing: there only the live bytes are fewer, or only the largest tensor is smaller. */
Test(batch_foretell, needs_that_do_not_follow)
{
    struct ms_batch_run runs[] = {{.batch = 64, .live_bytes = 500, .largest_bytes = 64},
                                  {.batch = 32, .live_bytes = 300, .largest_bytes = 32},
                                  {.batch = 110, .live_bytes = 900, .largest_bytes = 103},
                                  {.batch = 120, .live_bytes = 400, .largest_bytes = 40}};
    struct ms_batch_contrast contrast;

    cr_assert_not(ms_batch_runs_contrast(runs, 3, &contrast));
    cr_assert(ms_batch_runs_contrast(runs, 4, &contrast));
    cr_assert_eq(contrast.smaller, 110);
    cr_assert_eq(contrast.smaller_live_bytes, 900);
    cr_assert_eq(contrast.larger, 120);
    cr_assert_eq(contrast.larger_live_bytes, 400);
    cr_assert_eq(next_of(runs, 4, MIB), 0);
    runs[3].largest_bytes = 103;
    cr_assert_not(ms_batch_runs_contrast(runs, 4, &contrast));
    runs[3].largest_bytes = 0; /* unknown */
    cr_assert_not(ms_batch_runs_contrast(runs, 4, &contrast));
    runs[3].largest_bytes = 40;
    runs[3].live_bytes = 900;
    cr_assert_not(ms_batch_runs_contrast(runs, 4, &contrast));
}

/* A batch that is padded to a multiple may need what a smaller one needs, and goes on growing. */
Test(batch_foretell, needs_that_grow_no_more)
{
    struct ms_batch_run runs[] = {
        {.batch = 16, .fits = true, .live_bytes = 500, .largest_bytes = 64},
        {.batch = 8, .fits = true, .live_bytes = 500, .largest_bytes = 64},
        {.batch = 17, .fits = true, .live_bytes = 500, .largest_bytes = 64}};
    struct ms_batch_contrast level;

    cr_assert(ms_batch_runs_level(runs, 2, &level));
    cr_assert_eq(level.smaller, 8);
    cr_assert_eq(level.larger, 16);
    cr_assert_eq(next_of(runs, 2, MIB), 0);
    cr_assert(ms_batch_runs_level(runs, 3, &level));
    cr_assert_eq(level.smaller, 16);
    cr_assert_neq(next_of(runs, 3, MIB), 0);
    runs[0].fits = false;
    cr_assert_neq(next_of(runs, 2, MIB), 0);
    runs[0].live_bytes = 501;
    cr_assert_not(ms_batch_runs_level(runs, 2, &level));
    cr_assert_not(ms_batch_runs_level(runs, 1, &level));
}

Test(batch_foretell, too_few)
{
    struct ms_batch_run run = {.batch = 8, .fits = true};

    cr_assert_eq(next_of(&run, 1, MIB), 0);
}

/* Two ranks that ask for different things, told of in another order by the second run: each is
 * foretold from its own. */
Test(batch_foretell, ranks_in_another_order)
{
    static const struct layer heavy[] = {{MIB, 0}, {0, 3 * MIB}, {0, MIB}},
                              light[] = {{64 * MIB, 0}, {0, 40 * KIB}, {0, 9 * KIB}};
    struct ms_batch_run runs[2] = {{.batch = 8, .fits = true}, {.batch = 16, .fits = true}};
    uint64_t largest = 16;

    cr_assert(ms_batch_run_add(&runs[0], 0, record(heavy, 3, 8, false)));
    cr_assert(ms_batch_run_add(&runs[0], 1, record(light, 3, 8, false)));
    cr_assert(ms_batch_run_add(&runs[1], 1, record(light, 3, 16, false)));
    cr_assert(ms_batch_run_add(&runs[1], 0, record(heavy, 3, 16, false)));
    while (fits(heavy, 3, largest + 1, false, 300 * MIB)) {
        largest++;
    }
    cr_assert(fits(light, 3, largest + 1, false, 300 * MIB));
    cr_assert_eq(next_of(runs, 2, 300 * MIB), largest);
    ms_batch_run_free(&runs[0]);
    ms_batch_run_free(&runs[1]);
}
