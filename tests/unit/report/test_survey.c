/* SPDX-License-Identifier: Apache-2.0 */
/* The survey of a run that is made up, so that the truth is known. */
#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

#include "report/model/ledger.h"
#include "report/model/model.h"
#include "report/model/reading/read_model.h"
#include "report/model/survey/take.h"
#include "report/model/verdict/what_if.h"
#include "report/write/writer_state.h"
#include "synthetic.h"

#define STEPS  40u
#define BASE   (UINT64_C(1) << 40) /* of the segment's addresses */
#define CHUNK  (2 * MIB)
#define ARENA  (8 * CHUNK)
#define CHUNKS (ARENA / CHUNK)

enum {
    SITE_LEAK = 5,
    SITE_WARM = 6,
    SITE_BIG = 8,
    SITE_BRIEF = 9,
    SITE_PIN = 11,
    SITE_BACKWARD = 95
};

static ms_trace_t *trace;
static uint64_t next_id = 1000;
static struct ms_model *model;

static void emit(struct ms_event event)
{
    ms_trace_emit(trace, &event);
}

static uint64_t block(uint32_t site, uint64_t bytes)
{
    const uint64_t id = next_id++;

    emit((struct ms_event){.kind = MS_EVENT_BLOCK_ALLOC,
                           .id = id,
                           .addr = (id + (1u << 20)) * 64 * MIB,
                           .bytes = bytes,
                           .aux = bytes,
                           .site = site});
    return id;
}

static void release(uint64_t id, uint64_t bytes)
{
    emit((struct ms_event){.kind = MS_EVENT_BLOCK_FREE,
                           .id = id,
                           .addr = (id + (1u << 20)) * 64 * MIB,
                           .bytes = bytes});
}

static void begin(void)
{
    trace = synthetic_open(synthetic_folder());
    synthetic_define(trace);
    emit((struct ms_event){.kind = MS_EVENT_CAP, .bytes = GIB, .aux = 2 * GIB});
}

static const struct ms_survey_device *survey(enum ms_survey_depth depth)
{
    char why[512] = "";

    ms_trace_close(trace, true, 0);
    model = ms_model_new(ms_trace_dir(trace), why, sizeof(why));
    cr_assert_not_null(model, "%s", why);
    ms_model_name_sites(model, MS_STACKS_NAMES, NULL);
    ms_model_survey(model, depth);
    cr_assert_not_null(model->survey);
    cr_assert(model->survey->devices[0].used);
    return &model->survey->devices[0];
}

static void end(void)
{
    if (model) {
        ms_model_delete(model);
        model = NULL;
    }
}

TestSuite(survey, .init = begin, .fini = end);

/* ---- steps ---- */

/* Events of several threads may have the same time. */
static void give_all_the_same_time(void)
{
    cr_assert_leq(trace->recorded, MS_TAIL_EVENTS);
    const uint64_t time_ns = trace->tail->events[trace->recorded - 1].time_ns;

    for (uint64_t i = 0; i < trace->recorded; i++) {
        trace->tail->events[i].time_ns = time_ns;
    }
}

Test(survey, a_step_begins_with_its_event_and_not_with_its_time)
{
    release(block(SITE_BIG, 10 * MIB), 10 * MIB);
    for (unsigned step = 1; step <= 9; step++) {
        emit((struct ms_event){.kind = MS_EVENT_STEP, .id = step});
        release(block(SITE_BRIEF, MIB), MIB);
    }
    give_all_the_same_time();

    const struct ms_survey_device *found = survey(MS_SURVEY_SUMS);

    cr_assert_eq(found->growth.clock.count, 9);
    cr_assert_eq(found->most_before_steps_bytes, 10 * MIB);
    cr_assert_eq(found->most_in_steps_bytes, MIB);
}

/* ---- growth ---- */

static uint64_t big_bytes(unsigned step)
{
    return 10 * MIB + UINT64_C(4096) * (step % 7);
}

static void train(unsigned leak_from)
{
    for (unsigned step = 1; step <= STEPS; step++) {
        emit((struct ms_event){.kind = MS_EVENT_STEP, .id = step});

        const uint64_t big = block(SITE_BIG, big_bytes(step));

        if (step >= leak_from) {
            block(SITE_LEAK, 1000);
        }
        if (step <= 10) {
            block(SITE_WARM, 5000);
        }
        release(big, big_bytes(step));
    }
}

Test(survey, a_leak_is_found_and_a_warm_up_is_not)
{
    train(7);

    const struct ms_growth *growth = &survey(MS_SURVEY_SUMS)->growth;

    cr_assert(growth->known);
    cr_assert_not(growth->clock.by_time);
    cr_assert_eq(growth->count, 1);
    cr_expect_eq(growth->sites[0].site, SITE_LEAK);
    cr_expect_eq(growth->sites[0].bytes_per_round, 1000.0);
    cr_expect_eq(growth->sites[0].since_step, 7);
    /* A slope over windows of the real clock: one may end between an allocation and its free. */
    cr_expect_float_eq(growth->whole.bytes_per_step, 1000.0, 50.0);

    /* 10 blocks of the warm-up, 34 of the leak and the big one are the most that was charged: none,
     * since no chunk was made. From the last step on the whole cap is left. */
    cr_expect_eq(growth->sites[0].cap_at_step, STEPS + GIB / 1000);
    cr_expect_eq(growth->cap_at_step, STEPS + GIB / 1000);
}

/* Less is left than a step takes, and yet the last step ended well. */
Test(survey, a_cap_is_not_foretold_for_a_step_that_is_over)
{
    const uint64_t kept = 10 * 5000 + (STEPS - 6) * 1000;

    train(7);
    emit((struct ms_event){.kind = MS_EVENT_CHUNK_CREATE, .bytes = GIB - 500});
    block(SITE_WARM, GIB - 500 - kept);

    const struct ms_growth *growth = &survey(MS_SURVEY_SUMS)->growth;

    cr_assert_eq(growth->count, 1);
    cr_expect_eq(growth->sites[0].cap_at_step, STEPS + 1);
    cr_expect_eq(growth->cap_at_step, STEPS + 1);
}

/* What lies in host memory is live as well: the cap is not still to be met. */
Test(survey, a_cap_that_was_met_is_not_foretold)
{
    train(7);
    block(SITE_WARM, 2 * GIB);

    const struct ms_growth *growth = &survey(MS_SURVEY_SUMS)->growth;

    cr_assert(growth->known);
    cr_expect(growth->past_cap);
    cr_expect_eq(growth->sites[0].cap_at_step, 0);
    cr_expect_eq(growth->cap_at_step, 0);
}

/* A program that runs out of memory, lets half of what it kept go, and goes on keeping. */
Test(survey, a_leak_goes_on_behind_what_was_caught)
{
    const struct ms_oom_state state = synthetic_oom(GIB, MS_OOM_TORCH);
    uint64_t ids[3 * STEPS];
    unsigned first = 0, last = 0;

    for (unsigned step = 1; step <= 3 * STEPS; step++) {
        emit((struct ms_event){.kind = MS_EVENT_STEP, .id = step});
        ids[last++] = block(SITE_LEAK, MIB);
        if (step % STEPS == 0 && step < 3 * STEPS) {
            ms_trace_oom(trace, 0, &state);
            for (const unsigned middle = (first + last) / 2; first < middle; first++) {
                release(ids[first], MIB);
            }
        }
    }

    const struct ms_growth *growth = &survey(MS_SURVEY_SUMS)->growth;

    cr_assert_eq(growth->count, 1);
    cr_expect_eq(growth->sites[0].site, SITE_LEAK);
    cr_expect_eq(growth->sites[0].degree, MS_GROWTH_SEEN);
    cr_expect_eq(growth->sites[0].bytes_per_round, (double)MIB);
    cr_expect_eq(growth->sites[0].since_step, 2 * STEPS + 1);
}

Test(survey, nothing_grows)
{
    train(STEPS + 1);

    const struct ms_growth *growth = &survey(MS_SURVEY_SUMS)->growth;

    cr_assert(growth->known);
    cr_expect_eq(growth->count, 0);
    cr_expect_eq(growth->whole.bytes_per_step, 0.0);
    cr_expect_eq(growth->cap_at_step, 0);
}

Test(survey, without_steps_growth_is_by_time)
{
    block(SITE_BIG, MIB);

    const struct ms_survey_device *device = survey(MS_SURVEY_SUMS);

    cr_expect(device->growth.clock.by_time);
    cr_expect_not(device->growth.known, "it is still starting up");
    cr_expect_not_null(device->growth.why);
    cr_expect_not(device->headroom.known);
    cr_expect_not_null(device->headroom.why);
}

/* ---- who was live ---- */

static uint64_t held_by(const struct ms_survey_device *device,
                        const struct ms_survey_moment *moment, uint32_t site)
{
    for (size_t i = 0; i < moment->count; i++) {
        const struct ms_holding *holding = ms_survey_holding_at(device, moment->first + i);

        if (holding->site == site) {
            return holding->bytes;
        }
    }
    return 0;
}

static uint64_t sum_of(const uint64_t *bytes, size_t count)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < count; i++) {
        sum += bytes[i];
    }
    return sum;
}

static const struct ms_survey_moment *find(const struct ms_survey_device *device,
                                           enum ms_moment_kind kind)
{
    for (size_t i = 0; i < ms_survey_moment_count(device); i++) {
        if (ms_survey_moment_at(device, i)->kind == kind) {
            return ms_survey_moment_at(device, i);
        }
    }
    return NULL;
}

Test(survey, moments_say_who_was_live)
{
    const struct ms_oom_state state = synthetic_oom(30 * GIB, MS_OOM_DRIVER);
    const uint64_t kept = block(SITE_BIG, 100);
    const uint64_t most = block(SITE_PIN, 900);

    release(most, 900);
    block(SITE_BIG, 10);
    ms_trace_oom(trace, 0, &state);
    block(SITE_LEAK, 5);
    release(kept, 100);

    const struct ms_survey_device *device = survey(MS_SURVEY_SUMS);
    const struct ms_survey_moment *peak = find(device, MS_MOMENT_PEAK);
    const struct ms_survey_moment *oom = find(device, MS_MOMENT_OOM);
    const struct ms_survey_moment *last = find(device, MS_MOMENT_END);

    cr_assert_not_null(peak);
    cr_assert_not_null(oom);
    cr_assert_not_null(last);
    cr_expect_eq(peak->live_bytes, 1000);
    cr_expect_eq(held_by(device, peak, SITE_BIG), 100);
    cr_expect_eq(held_by(device, peak, SITE_PIN), 900);
    cr_expect_eq(oom->live_bytes, 110);
    cr_expect_eq(held_by(device, oom, SITE_BIG), 110);
    cr_expect_eq(held_by(device, oom, SITE_LEAK), 0);
    cr_expect_eq(oom, ms_survey_oom_moment(device, 0));
    cr_expect_eq(last->live_bytes, 15);
    cr_expect_eq(held_by(device, last, SITE_LEAK), 5);
    cr_assert(ms_survey_oom_at(model->survey, 0)->known);
    cr_expect_eq(sum_of(ms_survey_oom_at(model->survey, 0)->kind_bytes, MS_KIND_COUNT), 110);
    cr_expect_eq(sum_of(peak->kind_bytes, MS_KIND_COUNT), 1000);
}

/* A block that turns out to be an arena was never live itself. */
Test(survey, an_arena_is_no_live_block)
{
    emit((struct ms_event){
        .kind = MS_EVENT_BLOCK_ALLOC, .id = 1, .addr = BASE, .bytes = ARENA, .site = SITE_BIG});
    emit((struct ms_event){
        .kind = MS_EVENT_BLOCK_ARENA, .id = 1, .addr = BASE, .bytes = ARENA, .site = SITE_BIG});
    emit((struct ms_event){.kind = MS_EVENT_TENSOR_ALLOC,
                           .id = 2,
                           .addr = BASE,
                           .bytes = 300,
                           .site = SITE_PIN,
                           .aux = 1});

    const struct ms_survey_device *device = survey(MS_SURVEY_SUMS);
    const struct ms_survey_moment *peak = find(device, MS_MOMENT_PEAK);

    cr_assert_not_null(peak);
    cr_expect_eq(peak->live_bytes, 300);
    cr_expect_eq(held_by(device, peak, SITE_PIN), 300);
    cr_expect_eq(held_by(device, peak, SITE_BIG), 0);
}

/* At every bucket's end and highest moment the kinds are the live line, on a run of any shape. */
Test(survey, kinds_are_the_live_line)
{
    struct synthetic run;

    synthetic_begin(&run, trace, 7);
    synthetic_churn(&run, 20000);

    const struct ms_survey_device *device = survey(MS_SURVEY_SUMS);
    const struct ms_survey_bucket *last = &device->buckets[MS_SURVEY_BUCKETS - 1];
    uint64_t highest = 0;

    cr_expect_eq(sum_of(last->last_bytes, MS_KIND_COUNT), run.live_bytes);
    for (size_t i = 0; i < MS_SURVEY_BUCKETS; i++) {
        const uint64_t live = sum_of(device->buckets[i].highest_bytes, MS_KIND_COUNT);

        cr_expect_geq(live, sum_of(device->buckets[i].last_bytes, MS_KIND_COUNT));
        highest = live > highest ? live : highest;
    }
    cr_expect_eq(highest, run.peak_live_bytes);
    for (size_t i = 0; i < ms_survey_moment_count(device); i++) {
        const struct ms_survey_moment *moment = ms_survey_moment_at(device, i);
        uint64_t held = moment->other_bytes;

        for (size_t k = 0; k < moment->count; k++) {
            held += ms_survey_holding_at(device, moment->first + k)->bytes;
        }
        cr_expect_eq(held, moment->live_bytes);
        cr_expect_eq(sum_of(moment->kind_bytes, MS_KIND_COUNT), moment->live_bytes);
        cr_expect(i == 0 || moment->time_ns >= ms_survey_moment_at(device, i - 1)->time_ns);
    }
}

/* ---- sizes, temporaries ---- */

Test(survey, sizes_and_temporaries_are_counted)
{
    for (int i = 0; i < 20; i++) {
        release(block(SITE_BRIEF, 700), 700);
    }

    const uint64_t longer = block(SITE_BIG, 1024);

    block(SITE_BIG, 1025);
    release(longer, 1024);

    const struct ms_survey_device *device = survey(MS_SURVEY_SUMS);

    cr_expect_eq(device->sizes[9].count, 20);
    cr_expect_eq(device->sizes[9].bytes, UINT64_C(20) * 700);
    cr_expect_eq(device->sizes[10].count, 2);
    cr_expect_eq(device->temporary_allocations, 20);
    cr_expect_eq(device->temporary_bytes, UINT64_C(20) * 700);
    cr_assert_eq(device->temporary_count, 1);
    cr_expect_eq(device->temporaries[0].site, SITE_BRIEF);
    cr_expect_eq(device->temporaries[0].count, 20);
}

/* ---- headroom ---- */

#define GRADIENT_BYTES MIB
#define KEPT_BYTES     (512 * MIB - GRADIENT_BYTES)
#define PASS_BYTES     (64 * MIB)

/* What an optimizer's step keeps stays; what a backward pass asks for and is done with follows the
 * batch. The step needs a moment's memory that does not, and that is not at the peak of this run,
 * but would be at that of a small one. */
static void train_for_headroom(void)
{
    for (uint64_t step = 1; step <= 10; step++) {
        emit((struct ms_event){.kind = MS_EVENT_STEP, .id = step});

        const uint64_t gradient = block(SITE_BACKWARD, GRADIENT_BYTES);

        release(block(SITE_BACKWARD, PASS_BYTES), PASS_BYTES);
        if (step == 1) {
            block(SITE_BIG, KEPT_BYTES);
        }
        release(block(SITE_BRIEF, PASS_BYTES / 2), PASS_BYTES / 2);
        release(gradient, GRADIENT_BYTES);
    }
}

Test(survey, headroom_tells_what_follows_the_batch)
{
    train_for_headroom();

    const struct ms_headroom *headroom = &survey(MS_SURVEY_SUMS)->headroom;

    cr_assert(headroom->known, "%s", headroom->why);
    cr_expect_eq(headroom->persistent_bytes, KEPT_BYTES + GRADIENT_BYTES);
    cr_expect_eq(headroom->per_step_bytes, PASS_BYTES);
    for (size_t i = 0; i < MS_HEADROOM_FACTORS; i++) {
        const uint64_t factor = ms_headroom_factor_ppm(i);
        const uint64_t pass = PASS_BYTES * factor / 1000000;

        cr_expect_eq(headroom->peak_bytes[i],
                     KEPT_BYTES + GRADIENT_BYTES + (pass > PASS_BYTES / 2 ? pass : PASS_BYTES / 2),
                     "factor %zu", (size_t)factor);
    }
    /* The cap is 1 GiB: half of it is kept, and eight times 64 MiB are the other half. */
    cr_expect_not(headroom->unbounded);
    cr_expect_float_eq(headroom->largest_factor, 8.0, 1e-9);
    cr_expect_eq(headroom->batch, 0);
}

/* ---- addresses ---- */

static void chunk(enum ms_event_kind kind, uint64_t number, bool host)
{
    emit((struct ms_event){.kind = MS_EVENT_CHUNK_CREATE,
                           .id = 100 + number + (host ? 50 : 0),
                           .bytes = CHUNK,
                           .aux = host ? MS_LOCATION_HOST : MS_LOCATION_DEVICE});
    emit((struct ms_event){.kind = (uint8_t)kind,
                           .id = 100 + number + (host ? 50 : 0),
                           .addr = BASE + number * CHUNK,
                           .bytes = CHUNK});
}

static void unmap(uint64_t number)
{
    emit((struct ms_event){
        .kind = MS_EVENT_UNMAP, .id = 100 + number, .addr = BASE + number * CHUNK, .bytes = CHUNK});
}

static void tensor(uint64_t id, uint32_t site, uint64_t offset, uint64_t bytes)
{
    emit((struct ms_event){.kind = MS_EVENT_TENSOR_ALLOC,
                           .id = id,
                           .addr = BASE + offset,
                           .bytes = bytes,
                           .site = site,
                           .aux = 1});
}

/* One arena of eight chunks: 0 live, 1 to 3 holes, 4 with a small tensor, 5 taken back, 6 spilled
 * and live, 7 a hole. */
static void lay_out(void)
{
    emit((struct ms_event){.kind = MS_EVENT_RANGE_RESERVE, .addr = BASE, .bytes = 64 * GIB});
    for (uint64_t i = 0; i < CHUNKS; i++) {
        chunk(MS_EVENT_MAP, i, false);
    }
    emit((struct ms_event){.kind = MS_EVENT_BLOCK_ALLOC, .id = 1, .addr = BASE, .bytes = ARENA});
    emit((struct ms_event){.kind = MS_EVENT_BLOCK_ARENA, .id = 1, .addr = BASE, .bytes = ARENA});
    unmap(5);
    unmap(6);
    chunk(MS_EVENT_MAP, 6, true);
    tensor(2, SITE_BIG, 0, CHUNK);
    tensor(3, SITE_BIG, 6 * CHUNK, CHUNK);
    tensor(4, SITE_PIN, 4 * CHUNK, 512);
}

Test(survey, the_map_shows_what_lies_where)
{
    static const uint8_t states[CHUNKS] = {MS_MAP_LIVE, MS_MAP_HOLE,  MS_MAP_HOLE,    MS_MAP_HOLE,
                                           MS_MAP_HOLE, MS_MAP_TAKEN, MS_MAP_SPILLED, MS_MAP_HOLE};

    lay_out();

    const struct ms_survey_device *device = survey(MS_SURVEY_WHOLE);
    const struct ms_map_segment *segment = device->segments;

    cr_assert_eq(device->segment_count, 1);
    cr_expect_eq(segment->addr, BASE);
    cr_expect_eq(segment->bytes, ARENA);
    for (size_t row = 0; row < MS_MAP_ROWS; row++) {
        const struct ms_map_cell *cell = &segment->cells[row][MS_MAP_COLUMNS - 1];

        cr_expect_eq(cell->state, states[row / (MS_MAP_ROWS / CHUNKS)], "row %zu is %d", row,
                     cell->state);
    }
    cr_expect_eq(segment->cells[0][MS_MAP_COLUMNS - 1].site, SITE_BIG);
    cr_expect_eq(segment->cells[0][MS_MAP_COLUMNS - 1].live_share, 255);
    cr_expect_eq(segment->cells[UINT64_C(4) * MS_MAP_ROWS / CHUNKS][MS_MAP_COLUMNS - 1].site,
                 SITE_PIN);
}

Test(survey, pins_name_who_keeps_holes)
{
    lay_out();

    const struct ms_survey_pins *pins = survey(MS_SURVEY_WHOLE)->pins;

    cr_assert_not_null(pins);
    cr_assert_eq(pins->arena_count, 1);
    cr_expect_eq(pins->backed_hole_bytes, 5 * CHUNK - 512);
    cr_expect_eq(pins->arenas[0].backed_hole_bytes, 5 * CHUNK - 512);
    cr_expect_eq(pins->arenas[0].taken_hole_bytes, CHUNK);
    cr_expect_eq(pins->arenas[0].largest_hole_bytes, 3 * CHUNK);
    cr_expect_eq(pins->arenas[0].live_bytes, 2 * CHUNK + 512);
    cr_expect_eq(pins->arenas[0].tensors, 3);
    cr_assert_eq(pins->site_count, 2);
    cr_expect_eq(pins->sites[0].site, SITE_BIG);
    cr_expect_eq(pins->sites[0].tensors, 2);
    cr_expect_eq(pins->sites[0].pinned_bytes, (5 * CHUNK - 512) * 2 / 3);
    cr_expect_eq(pins->sites[1].site, SITE_PIN);
    cr_expect_eq(pins->sites[1].pinned_bytes, (5 * CHUNK - 512) / 3);
}

Test(survey, sums_alone_have_no_addresses)
{
    lay_out();

    const struct ms_survey_device *device = survey(MS_SURVEY_SUMS);

    cr_expect_eq(device->segment_count, 0);
    cr_expect_null(device->pins);
}

/* ---- the host ---- */

static uint64_t on_host(void)
{
    struct ms_ledger_row rows[MS_LEDGER_ROWS];
    const size_t count = ms_ledger_at_peak(model, 0, rows);

    for (size_t i = 0; i < count; i++) {
        if (strcmp(rows[i].name, "on_host") == 0) {
            return rows[i].bytes;
        }
    }
    return 0;
}

/* Host memory may stand behind a hole: no live byte lies there. */
Test(survey, what_is_set_aside_on_the_host_is_not_live_there)
{
    lay_out();
    survey(MS_SURVEY_SUMS);
    cr_expect_eq(on_host(), 0);
}

Test(survey, what_moved_to_the_host_is)
{
    emit((struct ms_event){.kind = MS_EVENT_SPILL, .addr = BASE + 6 * CHUNK, .bytes = CHUNK / 2});
    lay_out();
    survey(MS_SURVEY_SUMS);
    cr_expect_eq(on_host(), CHUNK / 2);
}

/* What PyTorch alone would have needed is what it ever held, whenever that was. */
Test(survey, what_torch_held_is_the_most_of_the_run)
{
    lay_out();
    for (uint64_t id = 2; id <= 4; id++) {
        emit((struct ms_event){.kind = MS_EVENT_TENSOR_FREE, .id = id, .bytes = CHUNK});
    }
    emit((struct ms_event){
        .kind = MS_EVENT_BLOCK_FREE, .id = 1, .addr = BASE, .bytes = ARENA, .aux = 1});
    emit((struct ms_event){
        .kind = MS_EVENT_BLOCK_ALLOC, .id = 9, .addr = BASE + ARENA, .bytes = 4 * CHUNK});
    emit((struct ms_event){
        .kind = MS_EVENT_BLOCK_ARENA, .id = 9, .addr = BASE + ARENA, .bytes = 4 * CHUNK});
    tensor(10, SITE_BIG, ARENA, 4 * CHUNK);
    survey(MS_SURVEY_SUMS);
    cr_expect_eq(ms_what_if_torch_bytes(model, 0), ARENA);
}

/* ---- waits ---- */

static void waits(uint64_t bytes)
{
    emit((struct ms_event){.kind = MS_EVENT_WAITS, .bytes = bytes});
}

Test(survey, what_waits_is_a_line_of_the_timeline)
{
    waits(4 * MIB);
    waits(96 * MIB);
    waits(32 * MIB);
    cr_assert_eq(usleep(20000), 0); /* the last buckets have no event */

    const struct ms_survey_device *device = survey(MS_SURVEY_SUMS);
    size_t most = 0;

    cr_expect_eq(device->most_waiting_bytes, 96 * MIB);
    for (size_t i = 1; i < MS_SURVEY_BUCKETS; i++) {
        most = device->buckets[i].most_waiting_bytes > device->buckets[most].most_waiting_bytes
                   ? i
                   : most;
    }
    cr_expect_eq(device->buckets[most].most_waiting_bytes, 96 * MIB);
    cr_expect_eq(most, device->most_waiting_ns / model->survey->bucket_ns);
    cr_expect_eq(device->buckets[MS_SURVEY_BUCKETS - 1].most_waiting_bytes, 32 * MIB,
                 "it stands until the next is told");
}
