/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded trace tells of the whole run what an unbounded one tells: sums by call site, kinds,
 * steps, who held what at the peak and at each out-of-memory. The same run, told to both. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop.h"
#include "report/model/model.h"
#include "report/model/reading/read_model.h"
#include "report/model/site_rows.h"
#include "report/model/survey.h"
#include "report/model/survey/take.h"
#include "synthetic.h"

enum { PARAMETERS = 20, ACTIVATIONS = 30, SITES = LOOP_UNKNOWN + 1, OOMS = 5, KILLS = 30 };

/* A block or tensor, as the run's own ledger has it. */
struct owned {
    uint64_t id, bytes, addr;
    uint32_t site;
};

struct run {
    ms_trace_t *trace;
    uint64_t random, next_id, events;
    struct owned parameters[PARAMETERS], gradients[PARAMETERS], state[PARAMETERS];
    uint64_t held[SITES], allocations[SITES];
    uint64_t live_bytes, peak_bytes, peak_held[SITES];
    uint64_t oom_held[OOMS][SITES];
    int ooms;
};

static void tell(struct run *run, struct ms_event event)
{
    ms_trace_emit(run->trace, &event);
    run->events++;
}

static struct owned born(struct run *run, uint32_t site, uint64_t bytes)
{
    const struct owned owned = {++run->next_id, bytes, 0x7f0000000000 + run->next_id * MIB, site};

    tell(run, (struct ms_event){.kind = MS_EVENT_TENSOR_ALLOC,
                                .id = owned.id,
                                .addr = owned.addr,
                                .bytes = bytes,
                                .site = site});
    run->held[site] += bytes;
    run->allocations[site]++;
    run->live_bytes += bytes;
    if (run->live_bytes > run->peak_bytes) {
        run->peak_bytes = run->live_bytes;
        memcpy(run->peak_held, run->held, sizeof(run->held));
    }
    return owned;
}

static void died(struct run *run, const struct owned *owned)
{
    tell(run, (struct ms_event){.kind = MS_EVENT_TENSOR_FREE,
                                .id = owned->id,
                                .addr = owned->addr,
                                .bytes = owned->bytes});
    run->held[owned->site] -= owned->bytes;
    run->live_bytes -= owned->bytes;
}

static void moment(struct run *run, uint32_t site, uint64_t bytes)
{
    const struct owned owned = born(run, site, bytes);

    died(run, &owned);
}

static void define(void *ctx, uint32_t kind, const void *payload, size_t bytes)
{
    cr_assert(ms_trace_define(ctx, kind, payload, bytes));
}

static void begin(struct run *run, ms_trace_t *trace)
{
    *run = (struct run){.trace = trace, .random = 42};
    loop_define(define, trace);
    ms_trace_device(trace, 0, "GPU", NULL, 24 * GIB, 23 * GIB);
    run->events++;
    for (int i = 0; i < PARAMETERS; i++) {
        run->parameters[i] = born(run, LOOP_PARAMETER, 1000000 + (uint64_t)i);
    }
}

static void out_of_memory(struct run *run)
{
    const struct ms_oom_state state = synthetic_oom(40 * GIB, MS_OOM_TORCH);

    ms_trace_oom(run->trace, 0, &state);
    if (run->ooms < OOMS) {
        memcpy(run->oom_held[run->ooms], run->held, sizeof(run->held));
    }
    run->ooms++;
}

static void forward(struct run *run, struct owned *activations, uint32_t site)
{
    for (int i = 0; i < ACTIVATIONS; i++) {
        activations[i] = born(run, site, 5000 + synthetic_random(&run->random) % 100000);
        moment(run, site, 700);
    }
}

/* An optimizer's step; every tenth with an evaluation before it, every fiftieth with more to it. */
static void step(struct run *run, uint64_t number)
{
    struct owned activations[ACTIVATIONS];
    const struct owned input = born(run, LOOP_INPUT, 40000);

    tell(run, (struct ms_event){.kind = MS_EVENT_STEP, .id = number});
    tell(run, (struct ms_event){.kind = MS_EVENT_TAG_BEGIN, .id = 7, .aux = 1 + number % 2});
    if (number % 10 == 0) {
        moment(run, LOOP_EVALUATION, 9000);
    }
    if (number % 50 == 3) {
        tell(run, (struct ms_event){.kind = MS_EVENT_CHARGE,
                                    .owner = MS_OWNER_FORWARDED,
                                    .addr = number * MIB,
                                    .bytes = 4096,
                                    .site = LOOP_COPY,
                                    .aux = MS_CHARGE_NCCL});
        tell(run, (struct ms_event){
                      .kind = MS_EVENT_HOST_ALLOC, .addr = number, .bytes = 77, .site = LOOP_KEPT});
        tell(run, (struct ms_event){.kind = MS_EVENT_SPILL,
                                    .addr = run->parameters[3].addr,
                                    .bytes = 5000,
                                    .aux = 10});
    }
    forward(run, activations, LOOP_FORWARD);
    if (number % 777 == 776) {
        out_of_memory(run);
    }
    for (int i = ACTIVATIONS; i-- > 0;) {
        moment(run, LOOP_BACKWARD, 3000);
        died(run, &activations[i]);
    }
    for (int i = 0; i < PARAMETERS; i++) {
        run->gradients[i] = born(run, LOOP_GRADIENT, 1000000 + (uint64_t)i);
    }
    for (int i = 0; i < PARAMETERS; i++) {
        if (number == 1) {
            run->state[i] = born(run, LOOP_STATE, 2000000);
        }
        moment(run, LOOP_UPDATE, 600);
    }
    for (int i = 0; i < PARAMETERS; i++) {
        died(run, &run->gradients[i]);
    }
    died(run, &input);
    tell(run, (struct ms_event){.kind = MS_EVENT_TAG_END, .id = 7, .aux = 1 + number % 2});
}

static ms_trace_t *open_trace(const char *folder, uint64_t limit_bytes)
{
    struct ms_trace_config config = synthetic_config(folder);

    config.limit_bytes = limit_bytes;
    return ms_trace_open(&config, NULL, 0);
}

static struct ms_model *run_steps(struct run *run, uint64_t limit_bytes, uint64_t steps)
{
    char why[512] = "";
    ms_trace_t *trace = open_trace(synthetic_folder(), limit_bytes);
    struct ms_model *model;

    begin(run, trace);
    for (uint64_t number = 1; number <= steps; number++) {
        step(run, number);
    }
    ms_trace_close(trace, true, 0);
    model = ms_model_new(ms_trace_dir(trace), why, sizeof(why));
    cr_assert_not_null(model, "%s", why);
    cr_assert_eq(model->warning_count, 0, "%s", model->warnings.at);
    return model;
}

/* Sums without times: the two runs are not one. */
static struct ms_site_sums sums_of(const struct ms_model *model, uint32_t site)
{
    struct ms_site_sums sums = {0};

    (void)ms_site_table_read(model->sites, 0, site, &sums);
    sums.lifetime_ns = sums.first_ns = sums.last_ns = 0;
    return sums;
}

static void expect_same_sites(const struct ms_model *bounded, const struct ms_model *whole)
{
    for (uint32_t site = 0; site < SITES; site++) {
        const struct ms_site_sums left = sums_of(bounded, site), right = sums_of(whole, site);
        struct ms_site_lifetimes lifetimes = {0}, expected = {0};
        struct ms_site_kinds kinds, wanted;

        /* Eight bytes a field, and the doubles come of the same sums. */
        const int differ = memcmp((const char *)&left, (const char *)&right, sizeof(left));
        cr_assert_eq(differ, 0, "site %u: %lu, not %lu", site, left.allocations, right.allocations);
        (void)ms_site_table_lifetimes(bounded->sites, 0, site, &lifetimes);
        (void)ms_site_table_lifetimes(whole->sites, 0, site, &expected);
        cr_assert_eq(memcmp(&lifetimes, &expected, sizeof(lifetimes)), 0, "site %u", site);
        ms_site_kinds(bounded, 0, site, &kinds);
        ms_site_kinds(whole, 0, site, &wanted);
        cr_assert_eq(kinds.kind, wanted.kind, "site %u", site);
    }
}

/* The ledger's, by site. */
static void expect_held(const struct ms_model *model, const struct ms_digest_moment *moment,
                        const uint64_t *held)
{
    const struct ms_digest_holding *holdings =
        (const struct ms_digest_holding *)model->digest_moments.holdings.at + moment->first;
    uint64_t seen = 0, expected = 0;

    for (size_t i = 0; i < moment->count; i++) {
        cr_assert_lt(holdings[i].site, SITES);
        cr_assert_eq(holdings[i].bytes, held[holdings[i].site]);
        seen += holdings[i].bytes;
    }
    for (int site = 0; site < SITES; site++) {
        expected += held[site];
    }
    cr_assert_eq(seen, expected);
}

Test(digest, a_bounded_trace_tells_what_a_whole_one_tells, .timeout = 600)
{
    static struct run small, large;
    struct ms_model *bounded = run_steps(&small, 1 * MIB, 4000);
    struct ms_model *whole = run_steps(&large, 0, 4000);

    cr_assert_gt(bounded->recycled_events, bounded->events / 2);
    cr_assert_eq(whole->recycled_events, 0);
    cr_assert(!bounded->beginning_lost);
    cr_assert_gt(bounded->digest_events, 0);
    cr_assert_gt(bounded->first_detail_ns, 0);
    cr_assert_eq(bounded->recycled_events + bounded->read_events, bounded->events);
    expect_same_sites(bounded, whole);
    cr_assert(bounded->recurrence.known);
    cr_assert_eq(bounded->recurrence.count, 4000);
    cr_assert_eq(whole->recurrence.count, 4000);
    cr_assert_eq(bounded->recurrence.evaluations, whole->recurrence.evaluations);
    cr_assert_eq(bounded->recurrence.evaluations, 400);
    cr_assert_eq(bounded->steps.count, 4000);
    cr_assert_eq(bounded->tags.ranges.bytes, whole->tags.ranges.bytes);
    for (uint32_t site = 0; site < SITES; site++) {
        cr_assert_eq(sums_of(bounded, site).live_bytes, small.held[site]);
        cr_assert_eq(sums_of(bounded, site).at_peak_bytes, small.peak_held[site]);
    }
    ms_model_delete(bounded);
    ms_model_delete(whole);
}

Test(digest, who_held_what_at_each_out_of_memory_is_kept, .timeout = 600)
{
    static struct run run;
    struct ms_model *model = run_steps(&run, 1 * MIB, 4000);
    const struct ms_digest_moment *all =
        (const struct ms_digest_moment *)model->digest_moments.heads.at;
    const size_t count = model->digest_moments.heads.bytes / sizeof(*all);
    int found = 0, instants = 0;

    cr_assert_eq(run.ooms, OOMS);
    for (size_t i = 0; i < count; i++) {
        if (all[i].oom) {
            cr_assert_eq(all[i].event, ms_model_oom_at(model, (size_t)found)->event);
            expect_held(model, &all[i], run.oom_held[found++]);
        } else {
            instants++;
        }
        cr_assert(i == 0 || all[i].event >= all[i - 1].event);
    }
    cr_assert_geq(found, OOMS - 1, "all but those of the newest records");
    cr_assert_gt(instants, 4);
    ms_model_delete(model);
}

/* The ledger's, as the survey has it. */
static void expect_moment(const struct ms_survey_device *device, size_t oom, const uint64_t *held)
{
    const struct ms_survey_moment *moment = ms_survey_oom_moment(device, oom);
    uint64_t seen = 0, expected = 0;

    cr_assert_not_null(moment);
    for (size_t i = 0; i < moment->count; i++) {
        const struct ms_holding *holding = ms_survey_holding_at(device, moment->first + i);

        cr_assert_eq(holding->bytes, held[holding->site], "site %u", holding->site);
        seen += holding->bytes;
    }
    for (int site = 0; site < SITES; site++) {
        expected += held[site];
    }
    cr_assert_eq(seen, expected);
    cr_assert_eq(moment->live_bytes, expected);
}

Test(digest, the_survey_begins_with_what_was_live, .timeout = 600)
{
    static struct run run;
    struct ms_model *model = run_steps(&run, 1 * MIB, 4000);

    ms_model_survey(model, MS_SURVEY_SUMS);
    cr_assert_not_null(model->survey);

    const struct ms_survey_device *device = &model->survey->devices[0];

    for (size_t i = 0; i < OOMS; i++) {
        expect_moment(device, i, run.oom_held[i]);
    }

    const struct ms_survey_bucket *last = &device->buckets[MS_SURVEY_BUCKETS - 1];
    const uint64_t state = run.held[LOOP_STATE], parameters = run.held[LOOP_PARAMETER];

    cr_assert_eq(last->last_bytes[MS_KIND_OPTIMIZER], state);
    cr_assert_eq(last->last_bytes[MS_KIND_PARAMETERS], parameters);
    cr_assert_eq(last->last_bytes[MS_KIND_UNKNOWN], 0);
    ms_model_delete(model);
}

/* Every allocation has its site, whatever became of its record. */
static void expect_whole(const struct ms_model *model, const char *when)
{
    const struct ms_aggregate *sums = &model->devices[0].sums;
    uint64_t allocations = 0, live = 0;

    for (uint32_t site = 0; site < SITES; site++) {
        const struct ms_site_sums each = sums_of(model, site);

        allocations += site == LOOP_COPY ? 0 : each.allocations; /* forwarded */
        live += each.live_bytes;
        cr_assert(site > 0 || each.allocations == 0, "%s", when);
    }
    cr_assert(!model->beginning_lost, "%s", when);
    cr_assert_eq(allocations, sums->tensor_allocations, "%s: %lu of %lu", when, allocations,
                 sums->tensor_allocations);
    cr_assert_eq(live, ms_counters_live(&sums->now), "%s", when);
}

Test(digest, killed_while_windows_are_recycled, .timeout = 600)
{
    struct shared {
        char dir[PATH_MAX];
        _Atomic uint64_t events;
    } *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t random = 7, digests = 0;

    for (int i = 0; i < KILLS; i++) {
        const char *folder = synthetic_folder();
        char why[512] = "";

        shared->events = 0;

        const pid_t child = fork();

        if (child == 0) {
            static struct run run;
            ms_trace_t *trace = open_trace(folder, 1 * MIB);

            begin(&run, trace);
            (void)snprintf(shared->dir, PATH_MAX, "%s", ms_trace_dir(trace));
            for (uint64_t number = 1;; number++) {
                step(&run, number);
                shared->events = run.events;
            }
        }

        /* Recycling begins after about 150,000. */
        const uint64_t least = 1 + synthetic_random(&random) % 600000;

        while (shared->events < least) {
            usleep(50);
        }
        usleep((useconds_t)(synthetic_random(&random) % 5000));
        kill(child, SIGKILL);
        cr_assert_eq(waitpid(child, NULL, 0), child);

        struct ms_model *model = ms_model_new(shared->dir, why, sizeof(why));

        cr_assert_not_null(model, "%s", why);
        cr_assert_eq(model->warning_count, 0, "%s", model->warnings.at);
        cr_assert_eq(model->events, model->read_events + model->recycled_events);
        expect_whole(model, "killed");
        digests += model->digest_events > 0;
        ms_model_delete(model);
    }
    cr_assert_gt(digests, KILLS / 4, "%lu", digests);
}

Test(digest, a_full_disk_is_a_smaller_trace, .timeout = 600)
{
    const struct rlimit limit = {6 * MIB, 6 * MIB};
    static struct run run;

    cr_assert_eq(signal(SIGXFSZ, SIG_DFL) == SIG_ERR, 0);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);

    struct ms_model *model = run_steps(&run, 0, 6000);

    cr_assert_eq(model->header.disk_full, 1);
    cr_assert_eq(model->lost_events, 0);
    cr_assert_gt(model->recycled_events, model->events / 4);
    expect_whole(model, "full");
    cr_assert_eq(model->recurrence.count, 6000);
    ms_model_delete(model);
}
