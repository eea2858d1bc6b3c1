/* SPDX-License-Identifier: Apache-2.0 */
/* Small runs whose best outcome is known by hand. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "report/fit/what_if_search.h"
#include "report/replay/replay.h"
#include "report/replay/replay_oracle.h"
#include "synthetic.h"

#define PLAIN "time_us,op,id,bytes,stream,site\n"
#define WHOLE "time_us,op,id,bytes,stream,site,addr\n"

static struct ms_recording read_text(const char *text)
{
    struct ms_recording recording;
    char why[PATH_MAX + 512] = "", path[PATH_MAX];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/run.csv", synthetic_folder());
    file = fopen(path, "w");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(text, 1, strlen(text), file), strlen(text));
    cr_assert_eq(fclose(file), 0);
    cr_assert(ms_recording_begin(&recording));
    cr_assert(ms_recording_read_csv(&recording, path, why, sizeof(why)), "%s", why);
    return recording;
}

static struct ms_call_costs costs;

static struct ms_replay_config config_of(uint64_t cap_bytes)
{
    if (!costs.rows.at) {
        cr_assert(ms_call_costs_default(&costs));
    }
    return (struct ms_replay_config){.cap_bytes = cap_bytes,
                                     .device_bytes = cap_bytes,
                                     .host_limit_bytes = MS_REPLAY_AMPLE_BYTES,
                                     .charges = true,
                                     .checked = true,
                                     .costs = &costs};
}

static struct ms_replay_result replay(const struct ms_recording *recording,
                                      const struct ms_replay_config *config)
{
    struct ms_replay_result result;

    ms_replay_run(recording, config, &result);
    cr_assert_not(result.host_memory);
    cr_assert_str_empty(result.violation, "%s", result.violation);
    cr_assert_eq(result.invalid_reports, 0);
    return result;
}

/* ---- the oracle ---- */

/* Four granules, free after one allocation over all of them; one is taken for a block. Then tensors
 * are born on the first, the third and the second: the fourth is the one to take. */
#define FOUR_GRANULES                          \
    WHOLE "0,segment,1,8388608,,,1073741824\n" \
          "1,born,2,8388608,,,1073741824\n"    \
          "2,died,2,,,,\n"                     \
          "3,alloc,3,2097152,,,\n"             \
          "4,born,4,512,,,1073741824\n"        \
          "5,died,4,,,,\n"                     \
          "6,born,5,512,,,1077936128\n"        \
          "7,died,5,,,,\n"                     \
          "8,born,6,512,,,1080033280\n"        \
          "9,died,6,,,,\n"                     \
          "10,free,3,,,,\n"

Test(replay, the_next_birth)
{
    struct ms_recording recording = read_text(FOUR_GRANULES);
    struct ms_oracle *oracle = ms_oracle_new(&recording);

    cr_assert_eq(ms_oracle_next(oracle, 0, 0, 2 * MIB, 0), 1);
    cr_assert_eq(ms_oracle_next(oracle, 0, 0, 2 * MIB, 1), 4);
    cr_assert_eq(ms_oracle_next(oracle, 0, 0, 2 * MIB, 4), UINT64_MAX);
    cr_assert_eq(ms_oracle_next(oracle, 0, 2 * MIB, 2 * MIB, 1), UINT64_MAX);
    cr_assert_eq(ms_oracle_next(oracle, 0, 4 * MIB, 2 * MIB, 3), 6);
    cr_assert_eq(ms_oracle_next(oracle, 0, 2 * MIB, 6 * MIB, 6), 8, "the nearest of three");
    cr_assert_eq(ms_oracle_next(oracle, 0, 512, 2 * MIB - 512, 1), UINT64_MAX,
                 "a birth beside the range does not touch it");
    ms_oracle_delete(oracle);
    ms_recording_free(&recording);
}

/* Where the replay has put the arena does not matter. */
Test(replay, the_oracle_ranks)
{
    struct ms_recording recording = read_text(FOUR_GRANULES);
    struct ms_oracle *oracle = ms_oracle_new(&recording);
    const struct ms_choice *choice = ms_oracle_choice(oracle);
    const ms_addr_t base = 0x700000000000u;
    const uint64_t expected[4] = {4, UINT64_MAX, 6, 8};

    ms_oracle_placed(oracle, 0, base);
    ms_oracle_now(oracle, 3);
    for (uint64_t i = 0; i < 4; i++) {
        const struct ms_candidate candidate = {
            .addr = base + i * 2 * MIB, .bytes = 2 * MIB, .arena = base, .arena_bytes = 8 * MIB};

        cr_assert_eq(choice->rank(choice->ctx, &candidate), expected[i], "granule %lu",
                     (unsigned long)i);
    }
    ms_oracle_delete(oracle);
    ms_recording_free(&recording);
}

Test(replay, knowing_the_future_saves_a_move)
{
    struct ms_recording recording = read_text(FOUR_GRANULES);
    struct ms_replay_config config = config_of(8 * MIB);
    struct ms_replay_result result;

    config.policy = MS_POLICY_ORACLE;
    result = replay(&recording, &config);
    cr_assert_not(result.failure.happened);
    cr_assert_eq(result.pool.holes_taken, 1);
    cr_assert_eq(result.pool.holes_backed, 0);

    config.policy = MS_POLICY_HIGHEST;
    result = replay(&recording, &config);
    cr_assert_not(result.failure.happened);
    cr_assert_eq(result.pool.holes_taken, 2, "the last granule, then another for its birth");
    cr_assert_eq(result.pool.holes_backed, 1);
    ms_recording_free(&recording);
}

/* ---- caps ---- */

/* Three blocks of a granule, the outer two freed, then one of two granules: 6 MiB live, none more
 * needed, since free chunks move. */
Test(replay, the_smallest_cap_of_moving_chunks)
{
    struct ms_recording recording = read_text(PLAIN "0,alloc,1,2097152,,\n"
                                                    "1,alloc,2,2097152,,\n"
                                                    "2,alloc,3,2097152,,\n"
                                                    "3,free,1,,,\n"
                                                    "4,free,3,,,\n"
                                                    "5,alloc,4,4194304,,\n");
    const struct ms_replay_config config = config_of(0);
    struct ms_replay_result result;
    unsigned replays;

    cr_assert_eq(ms_replay_min_cap(&recording, &config, 12, &result, &replays), 6 * MIB);
    cr_assert_eq(result.peak_charged_bytes, 6 * MIB);
    cr_assert_eq(result.moves, 1);
    ms_recording_free(&recording);
}

/* 3 MiB live take two chunks; what the driver took beside them does not count. */
Test(replay, the_smallest_cap_is_whole_chunks)
{
    struct ms_recording recording = read_text(PLAIN "0,charge,,419430400,,\n"
                                                    "0,alloc,1,1048576,,\n"
                                                    "1,alloc,2,1048576,,\n"
                                                    "2,alloc,3,1048576,,\n");
    const struct ms_replay_config config = config_of(0);
    struct ms_replay_result result;
    unsigned replays;

    cr_assert_eq(ms_replay_min_cap(&recording, &config, 12, &result, &replays), 4 * MIB);
    ms_recording_free(&recording);
}

Test(replay, where_it_fails)
{
    struct ms_recording recording = read_text(PLAIN "0,alloc,1,2097152,,\n"
                                                    "1,alloc,2,2097152,,\n"
                                                    "2,alloc,3,2097152,,\n");
    struct ms_replay_config config = config_of(4 * MIB);
    const struct ms_replay_result result = replay(&recording, &config);

    cr_assert(result.failure.happened);
    cr_assert_eq(result.failure.operation, 2);
    cr_assert_eq(result.failure.status, MS_ERR_NO_MEMORY);
    cr_assert_eq(result.failure.live_bytes, 4 * MIB);
    cr_assert_eq(result.operations, 2);
    config.cap_bytes = config.device_bytes = 6 * MIB;
    cr_assert_not(replay(&recording, &config).failure.happened);
    ms_recording_free(&recording);
}

/* ---- requests that the run did not get ---- */

/* 4 MiB live; 4 more were refused, and 2 after a free, of which the run ended. */
#define REFUSED_TWICE               \
    PLAIN "0,alloc,1,2097152,,\n"   \
          "1,alloc,2,2097152,,\n"   \
          "2,refused,,4194304,1,\n" \
          "3,free,1,,,\n"           \
          "4,fatal,,4194304,,\n"    \
          "5,free,2,,,\n"

Test(replay, what_the_run_ended_of)
{
    struct ms_recording recording = read_text(REFUSED_TWICE);
    struct ms_replay_config config = config_of(4 * MIB);
    struct ms_replay_result result = replay(&recording, &config);
    unsigned replays;

    cr_assert(result.failure.happened);
    cr_assert_eq(result.failure.operation, 4, "not where it went on");
    cr_assert_eq(result.failure.status, MS_ERR_NO_MEMORY);
    cr_assert_eq(result.refused, 2);
    cr_assert_eq(result.refused_served, 0);

    config = config_of(6 * MIB);
    result = replay(&recording, &config);
    cr_assert_not(result.failure.happened);
    cr_assert_eq(result.refused, 2);
    cr_assert_eq(result.refused_served, 1);
    cr_assert_eq(result.peak_charged_bytes, 6 * MIB);
    cr_assert_eq(result.operations, 6);

    config = config_of(8 * MIB);
    result = replay(&recording, &config);
    cr_assert_eq(result.refused_served, 2);
    cr_assert_eq(result.pool.live_bytes, 0, "what was got is given back");

    cr_assert_eq(ms_replay_min_cap(&recording, &config, 12, &result, &replays), 6 * MIB);
    ms_recording_free(&recording);
}

/* Neither makes the run need more, nor does trying it take anything away from what comes next. */
Test(replay, what_the_run_went_on_without)
{
    struct ms_recording recording = read_text(PLAIN "0,alloc,1,2097152,1,\n"
                                                    "1,refused,,1099511627776,1,\n"
                                                    "2,refused,,2097152,,\n"
                                                    "3,alloc,2,2097152,2,\n");
    struct ms_replay_config config = config_of(4 * MIB);
    struct ms_replay_result result;
    unsigned replays;

    for (config.lag = 0; config.lag <= 100; config.lag += 100) {
        result = replay(&recording, &config);
        cr_assert_not(result.failure.happened, "lag %lu", (unsigned long)config.lag);
        cr_assert_eq(result.refused_served, 1);
    }
    config.lag = 0;
    cr_assert_eq(ms_replay_min_cap(&recording, &config, 12, &result, &replays), 4 * MIB);
    cr_assert_eq(recording.peak_wanted_bytes, 4 * MIB);
    ms_recording_free(&recording);
}

/* 4 GiB live; 22 more were given up, and 20 are what it ended of: with them the cap of 23 GiB is
 * passed by 1, whatever was given up. */
Test(replay, what_would_have_been_enough_for_the_last_request)
{
    ms_trace_t *trace = synthetic_open(synthetic_folder());
    struct ms_oom_state state = synthetic_oom(22 * GIB, MS_OOM_DRIVER);
    struct ms_what_if found = {.device_bytes = 24 * GIB, .request_bytes = 20 * GIB};
    struct ms_recording *recording = ms_recording_new(0);
    char why[512];

    state.context_bytes = 0;
    ms_trace_device(trace, 0, "a card", NULL, 24 * GIB, 23 * GIB);
    ms_trace_emit(trace, &(struct ms_event){
                             .kind = MS_EVENT_BLOCK_ALLOC, .id = 1, .bytes = 4 * GIB - 130 * MIB});
    ms_trace_oom(trace, 0, &state);
    for (uint64_t id = 2; id < 67; id++) {
        ms_trace_emit(trace,
                      &(struct ms_event){.kind = MS_EVENT_BLOCK_ALLOC, .id = id, .bytes = 2 * MIB});
    }
    state.requested_bytes = 20 * GIB;
    ms_trace_oom(trace, 0, &state);
    ms_trace_close(trace, true, 1);

    cr_assert(ms_recording_read_trace(recording, ms_trace_dir(trace), 0, why, sizeof(why)), "%s",
              why);
    cr_assert(ms_what_if_search(recording, &state, 100000, &found));
    ms_recording_delete(recording);
    cr_assert_geq(found.plain.cap_bytes, 24 * GIB);
    cr_assert_lt(found.plain.too_small_bytes, 24 * GIB);
    cr_assert(found.own_cap_spilled);
    cr_assert_geq(found.own_cap_host_bytes, 1 * GIB);
    cr_assert_lt(found.own_cap_host_bytes, 2 * GIB, "%lu", (unsigned long)found.own_cap_host_bytes);
}

Test(replay, more_than_any_device_has)
{
    struct ms_recording recording = read_text(PLAIN "0,fatal,,281474976710656,,\n");
    struct ms_replay_config config = config_of(MS_REPLAY_AMPLE_BYTES);
    struct ms_replay_result result;
    unsigned replays;

    cr_assert(replay(&recording, &config).failure.happened);
    cr_assert_eq(ms_replay_min_cap(&recording, &config, 12, &result, &replays), 0);
    ms_recording_free(&recording);
}

Test(replay, what_is_charged_beside_counts)
{
    struct ms_recording recording = read_text(PLAIN "0,charge,,2097152,,\n"
                                                    "1,alloc,1,2097152,,\n"
                                                    "2,discharge,,2097152,,\n"
                                                    "3,alloc,2,2097152,,\n");
    struct ms_replay_config config = config_of(2 * MIB);

    cr_assert_eq(replay(&recording, &config).failure.operation, 1);
    config.charges = false;
    cr_assert_eq(replay(&recording, &config).failure.operation, 3);
    config.charges = true;
    config.cap_bytes = config.device_bytes = 4 * MIB;
    cr_assert_not(replay(&recording, &config).failure.happened);
    ms_recording_free(&recording);
}

/* ---- arenas and pages ---- */

/* Tensors lie where PyTorch put them, wherever the segments are: two of them, freed in the other
 * order, at addresses far from those of the dry device. The checks of replay() would see a live
 * byte without backing. */
Test(replay, segments_lie_elsewhere)
{
    struct ms_recording recording = read_text(WHOLE "0,segment,1,20971520,,,139637976727552\n"
                                                    "0,segment,2,2097152,,,139637997699072\n"
                                                    "1,born,3,20971520,,,139637976727552\n"
                                                    "1,born,4,512,,,139637999795712\n"
                                                    "2,died,3,,,,\n"
                                                    "3,segment_free,1,,,,\n"
                                                    "4,died,4,,,,\n"
                                                    "5,segment_free,2,,,,\n");
    struct ms_replay_config config = config_of(22 * MIB);
    struct ms_replay_result result = replay(&recording, &config);

    cr_assert_not(result.failure.happened);
    cr_assert_eq(result.peak_live_bytes, 20 * MIB + 512);
    cr_assert_eq(result.peak_reserved_bytes, 22 * MIB);

    config.mode = MS_REPLAY_TENSOR;
    result = replay(&recording, &config);
    cr_assert_not(result.failure.happened);
    cr_assert_eq(result.pool.allocations, 2, "the tensors, not the segments");
    ms_recording_free(&recording);
}

/* A page of 20 MiB with one live byte gives nine of its ten granules away under a cap. */
Test(replay, pages_give_their_holes)
{
    struct ms_recording recording = read_text(WHOLE "0,reserve,9,209715200,,,1073741824\n"
                                                    "0,map,9,20971520,,,1073741824\n"
                                                    "1,born,1,20971520,,,1073741824\n"
                                                    "2,born,2,512,,,1073741824\n"
                                                    "3,died,1,,,,\n");

    cr_assert_eq(recording.tensor_allocations, 2);
    ms_recording_free(&recording);
    recording = read_text(WHOLE "0,reserve,9,209715200,,,1073741824\n"
                                "0,map,9,20971520,,,1073741824\n"
                                "1,born,1,20971520,,,1073741824\n"
                                "2,died,1,,,,\n"
                                "3,born,2,512,,,1073741824\n"
                                "4,alloc,3,18874368,,,\n"
                                "5,free,3,,,,\n"
                                "6,died,2,,,,\n"
                                "7,unmap,,20971520,,,1073741824\n"
                                "8,unreserve,9,,,,\n");

    const struct ms_replay_config config = config_of(20 * MIB);
    const struct ms_replay_result result = replay(&recording, &config);

    cr_assert_not(result.failure.happened);
    cr_assert_eq(result.peak_reserved_bytes, 20 * MIB);
    cr_assert_eq(result.peak_host_backed_bytes, 0);
    ms_recording_free(&recording);
}

/* An arena that a capture was born in gives nothing. */
Test(replay, frozen_pages_give_nothing)
{
    struct ms_recording recording = read_text(WHOLE "0,reserve,9,209715200,,,1073741824\n"
                                                    "0,map,9,20971520,,,1073741824\n"
                                                    "1,freeze,,,,,1073741824\n"
                                                    "2,born,1,512,,,1073741824\n"
                                                    "3,died,1,,,,\n"
                                                    "4,alloc,3,2097152,,,\n");
    const struct ms_replay_config config = config_of(20 * MIB);
    const struct ms_replay_result result = replay(&recording, &config);

    cr_assert(result.failure.happened);
    cr_assert_eq(result.failure.operation, 5);
    ms_recording_free(&recording);
}

/* ---- order, steps, costs ---- */

/* A block freed on one stream is not another's while its work is not done. */
Test(replay, work_that_lags)
{
    struct ms_recording recording = read_text(PLAIN "0,alloc,1,2097152,1,\n"
                                                    "1,free,1,,1,\n"
                                                    "2,alloc,2,2097152,2,\n"
                                                    "3,free,2,,2,\n");
    struct ms_replay_config config = config_of(MS_REPLAY_AMPLE_BYTES);

    cr_assert_eq(replay(&recording, &config).peak_reserved_bytes, 2 * MIB);
    config.lag = 100;
    cr_assert_eq(replay(&recording, &config).peak_reserved_bytes, 4 * MIB);
    ms_recording_free(&recording);
}

/* The first two steps make the chunks; the two after them find all they need. */
Test(replay, steps_after_the_second)
{
    struct ms_recording recording = read_text(PLAIN "0,step,,,,\n0,alloc,1,2097152,1,\n"
                                                    "1,free,1,,1,\n"
                                                    "2,step,,,,\n2,alloc,1,4194304,1,\n"
                                                    "3,free,1,,1,\n"
                                                    "4,step,,,,\n4,alloc,1,4194304,1,\n"
                                                    "5,free,1,,1,\n"
                                                    "6,step,,,,\n6,alloc,1,2097152,1,\n"
                                                    "7,free,1,,1,\n");
    struct ms_replay_config config = config_of(MS_REPLAY_AMPLE_BYTES);
    struct ms_replay_result result = replay(&recording, &config);

    cr_assert_eq(result.steps, 4);
    cr_assert_gt(result.driver_calls, 0);
    cr_assert_eq(result.calls_after_second_step, 0);
    config.steps_every = 3;
    result = replay(&recording, &config);
    cr_assert_eq(result.steps, 4);
    ms_recording_free(&recording);
}

static const char *write_costs(const char *text)
{
    static char path[PATH_MAX];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/costs.csv", synthetic_folder());
    file = fopen(path, "w");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(text, 1, strlen(text), file), strlen(text));
    cr_assert_eq(fclose(file), 0);
    return path;
}

/* One block of 3 MiB: two chunks of 2 MiB or one of 4, mapped, and one access. */
Test(replay, measured_costs)
{
    struct ms_recording recording = read_text(PLAIN "0,alloc,1,2097152,1,\n");
    struct ms_replay_config config = config_of(MS_REPLAY_AMPLE_BYTES);
    struct ms_call_costs measured;
    char why[PATH_MAX + 512] = "";

    cr_assert(ms_call_costs_read(&measured,
                                 write_costs("# a card\ncall,bytes,median_ns,p99_ns\n"
                                             "create,67108864,9000000,9000000\n"
                                             "create,2097152,7000,8000\n"
                                             "map,2097152,500,600\n"),
                                 why, sizeof(why)),
              "%s", why);
    config.costs = &measured;

    const struct ms_replay_result result = replay(&recording, &config);

    cr_assert_eq(result.calls[MS_REPLAY_CREATE], 1);
    cr_assert_eq(result.modelled_ns, 7500, "of the size, and what has no row is free");
    cr_assert_eq(result.modelled_p99_ns, 8600);
    ms_call_costs_free(&measured);
    ms_recording_free(&recording);
}

Test(replay, costs_that_are_wrong)
{
    static const struct {
        const char *text, *expected;
    } faults[] = {
        {"", "cannot be read, or is empty"},
        {"call,ns\n", ":1: the header is not"},
        {"call,bytes,median_ns,p99_ns\nmake,1,1,1\n", ":2: call is none"},
        {"call,bytes,median_ns,p99_ns\nmap,x,1,1\n", ":2: bytes is none"},
        {"call,bytes,median_ns,p99_ns\nmap,1,,1\n", ":2: median_ns is none"},
        {"call,bytes,median_ns,p99_ns\n\nmap,1,1,1,1\n", ":3: p99_ns is none"},
    };

    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        struct ms_call_costs wrong;
        char why[PATH_MAX + 512] = "";

        cr_expect_not(ms_call_costs_read(&wrong, write_costs(faults[i].text), why, sizeof(why)));
        cr_expect_not_null(strstr(why, faults[i].expected), "%s", why);
        ms_call_costs_free(&wrong);
    }
}
