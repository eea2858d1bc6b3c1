/* SPDX-License-Identifier: Apache-2.0 */
/* The output of `memshim replay`: text and JSON. */
#include "report/render/commands/replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/json.h"
#include "allocator/base/units.h"

#define SCHEMA   "memshim-replay/1"
#define MILLION  UINT64_C(1000000)
#define SENTENCE 1024

/* In millionths, without exceeding 64 bits on the way. */
static int64_t ratio(uint64_t part, uint64_t whole)
{
    return whole ? (int64_t)((double)part / (double)whole * 1e6 + 0.5) : 0;
}

static const char *mode_name(enum ms_replay_mode mode)
{
    return mode == MS_REPLAY_TENSOR ? "tensor" : "native";
}

static bool has_steps(const struct ms_replay_result *result)
{
    return result->steps > 2;
}

static const char *status_text(ms_status_t status, char *text, size_t text_bytes)
{
    switch (status) {
    case MS_ERR_NO_MEMORY:
        return "out of memory";
    case MS_ERR_INVALID:
        return "invalid for the pool";
    case MS_ERR_NOT_SUPPORTED:
        return "not supported";
    default:
        (void)snprintf(text, text_bytes, "status %d", (int)status);
        return text;
    }
}

/* "operation 4711 (born, 20.0 MiB) at 12.3 s: out of memory. ..." */
static void add_failure(const struct ms_replay_answer *answer, char *text, size_t text_bytes)
{
    const struct ms_replay_failure *failure = &answer->result->failure;
    const struct ms_operation *operation = ms_recording_at(answer->recording, failure->operation);
    const char *site = ms_recording_site_name(answer->recording, operation->site);
    char asked[MS_UNIT_TEXT_BYTES], live[MS_UNIT_TEXT_BYTES], charged[MS_UNIT_TEXT_BYTES];
    char unused[MS_UNIT_TEXT_BYTES], pending[MS_UNIT_TEXT_BYTES], status[MS_UNIT_TEXT_BYTES];
    char when[MS_UNIT_TEXT_BYTES], why[MS_SENTENCE_BYTES] = "";

    if (failure->status == MS_ERR_NO_MEMORY) {
        (void)ms_verdict_parts(&failure->state, NULL, NULL, 0, why, sizeof(why));
    }
    (void)snprintf(text, text_bytes,
                   "operation %zu (%s of %s) at %s: %s. Live %s, charged %s, free in the pool %s, "
                   "waiting for queued work %s. %s%s%s%.200s",
                   failure->operation + 1, ms_operation_names[operation->kind],
                   ms_bytes_text(operation->bytes, asked, sizeof(asked)),
                   ms_duration_text(operation->time_us * 1000, when, sizeof(when)),
                   status_text(failure->status, status, sizeof(status)),
                   ms_bytes_text(failure->live_bytes, live, sizeof(live)),
                   ms_bytes_text(failure->charged_bytes, charged, sizeof(charged)),
                   ms_bytes_text(failure->free_bytes + failure->hole_bytes, unused, sizeof(unused)),
                   ms_bytes_text(failure->pending_bytes, pending, sizeof(pending)), why,
                   why[0] ? "." : "", site ? " Asked for by " : "", site ? site : "");
}

static bool failed_as_it_did(const struct ms_replay_answer *answer)
{
    const struct ms_replay_failure *failure = &answer->result->failure;

    return failure->happened &&
           ms_recording_at(answer->recording, failure->operation)->kind == MS_OPERATION_FATAL;
}

/* ---- text ---- */

static void add_bytes(struct ms_buffer *out, const char *name, uint64_t bytes)
{
    char text[MS_UNIT_TEXT_BYTES];

    ms_buffer_format(out, "  %-22s %12s\n", name, ms_bytes_text(bytes, text, sizeof(text)));
}

static void add_head(const struct ms_replay_answer *answer, struct ms_buffer *out)
{
    const struct ms_replay_config *config = answer->config;
    const struct ms_recording *recording = answer->recording;
    char count[MS_UNIT_TEXT_BYTES], cap[MS_UNIT_TEXT_BYTES];
    char sentence[SENTENCE];

    ms_buffer_add(out, "replay of ");
    ms_buffer_add_plain(out, answer->trace);
    ms_buffer_format(out, ": %s operations, %s mode, choice %s\n",
                     ms_count_text(ms_recording_count(recording), count, sizeof(count)),
                     mode_name(config->mode), ms_policy_names[config->policy]);
    if (config->cap_bytes >= MS_REPLAY_AMPLE_BYTES) {
        (void)snprintf(cap, sizeof(cap), "ample memory");
    } else {
        ms_bytes_text(config->cap_bytes, cap, sizeof(cap));
    }
    if (answer->result->failure.happened) {
        add_failure(answer, sentence, sizeof(sentence));
        ms_buffer_format(out, "FAILED with a cap of %s%s at ", cap,
                         failed_as_it_did(answer) ? ", as the run did," : "");
        ms_buffer_add_plain(out, sentence);
        ms_buffer_add(out, "\n");
    } else {
        ms_buffer_format(out, "completed with a cap of %s%s\n", cap,
                         answer->result->peak_host_backed_bytes ? ", with some memory on the host"
                                                                : "");
    }
}

static void add_refused(const struct ms_replay_answer *answer, struct ms_buffer *out)
{
    const struct ms_recording *recording = answer->recording;
    const struct ms_replay_result *result = answer->result;

    if (recording->fatal > 0) {
        add_bytes(out, "with the failed request", recording->peak_wanted_bytes);
    }
    if (recording->refused + recording->fatal > 0) {
        ms_buffer_format(out, "  %-22s %12" PRIu64 "   of %" PRIu64 " would be served here%s\n",
                         "refused requests", result->refused_served, result->refused,
                         recording->fatal > 0 ? "; the last one ended the run" : "");
    }
}

static void add_sizes(const struct ms_replay_answer *answer, struct ms_buffer *out)
{
    const struct ms_replay_result *result = answer->result;
    char ratio_text[MS_UNIT_TEXT_BYTES];

    if (answer->searched && answer->min_cap_bytes) {
        add_bytes(out, "smallest cap", answer->min_cap_bytes);
        ms_buffer_format(
            out, "  %-22s %12s   (%u replays)\n", "overhead ratio",
            ms_decimal_text(ratio(answer->min_cap_bytes, answer->recording->peak_wanted_bytes),
                            ratio_text, sizeof(ratio_text)),
            answer->replays);
    } else if (answer->searched) {
        ms_buffer_add(out, "  it does not complete with any cap\n");
    }
    add_bytes(out, "peak live", answer->recording->peak_live_bytes);
    add_refused(answer, out);
    add_bytes(out, "peak reserved", result->peak_reserved_bytes);
    add_bytes(out, "peak charged", result->peak_charged_bytes);
    if (result->peak_host_backed_bytes) {
        add_bytes(out, "peak in host memory", result->peak_host_backed_bytes);
    }
}

static void add_rate(struct ms_buffer *out, const char *name, uint64_t calls, uint64_t moves,
                     int64_t units)
{
    char call_text[MS_UNIT_TEXT_BYTES], move_text[MS_UNIT_TEXT_BYTES];

    ms_buffer_format(out, "  %-22s %12s driver calls, %s chunk moves\n", name,
                     ms_decimal_text(ratio(calls, (uint64_t)units), call_text, sizeof(call_text)),
                     ms_decimal_text(ratio(moves, (uint64_t)units), move_text, sizeof(move_text)));
}

static void add_calls(const struct ms_replay_answer *answer, struct ms_buffer *out)
{
    const struct ms_replay_result *result = answer->result;
    char count[MS_UNIT_TEXT_BYTES], median[MS_UNIT_TEXT_BYTES], p99[MS_UNIT_TEXT_BYTES];

    ms_buffer_format(out, "  %-22s %12s  ", "driver calls",
                     ms_count_text(result->driver_calls, count, sizeof(count)));
    for (int call = 0; call < MS_REPLAY_CALL_COUNT; call++) {
        if (result->calls[call] > 0) {
            ms_buffer_format(out, " %s %" PRIu64, ms_replay_call_names[call], result->calls[call]);
        }
    }
    ms_buffer_format(out, "\n  %-22s %12s   (%s if each call took its 99th percentile)\n",
                     "their estimated time",
                     ms_duration_text(result->modelled_ns, median, sizeof(median)),
                     ms_duration_text(result->modelled_p99_ns, p99, sizeof(p99)));
    ms_buffer_format(
        out, "  %-22s %12" PRIu64 "   (out of holes %" PRIu64 ", back into them %" PRIu64 ")\n",
        "chunk moves", result->moves, result->pool.holes_taken, result->pool.holes_backed);
    if (result->pool.views_made > 0) {
        ms_buffer_format(out, "  %-22s %12" PRIu64 "   (%" PRIu64 " at the end)\n", "views made",
                         result->pool.views_made, result->pool.views);
    }
    if (has_steps(result)) {
        add_rate(out, "per step, after the 2nd", result->calls_after_second_step,
                 result->moves_after_second_step, (int64_t)result->steps - 2);
    }
    add_rate(out, "per 1,000 operations", result->driver_calls * 1000, result->moves * 1000,
             (int64_t)(result->operations ? result->operations : 1));
    if (result->pool_operations > 0) {
        ms_buffer_format(out, "  %-22s %9" PRIu64 " ns per operation, with the dry device\n",
                         "pool time", result->pool_ns / result->pool_operations);
    }
}

static uint64_t moved_bytes(const struct ms_replay_moved *moved)
{
    return moved->down_bytes + moved->up_bytes + moved->used_bytes;
}

static void add_warm(const struct ms_replay_moved *warm, struct ms_buffer *out)
{
    char down[MS_UNIT_TEXT_BYTES], up[MS_UNIT_TEXT_BYTES], used[MS_UNIT_TEXT_BYTES];
    char stall[MS_UNIT_TEXT_BYTES], halts[MS_UNIT_TEXT_BYTES], times[MS_UNIT_TEXT_BYTES];

    if (warm->steps == 0) {
        return;
    }
    add_bytes(out, "moved per step", moved_bytes(warm) / warm->steps);
    ms_buffer_format(out, "  %-22s %12s   to the host, %s back, %s used on the host\n", "",
                     ms_bytes_text(warm->down_bytes / warm->steps, down, sizeof(down)),
                     ms_bytes_text(warm->up_bytes / warm->steps, up, sizeof(up)),
                     ms_bytes_text(warm->used_bytes / warm->steps, used, sizeof(used)));
    ms_buffer_format(out, "  %-22s %12s   (%s standstills)\n", "stall per step",
                     ms_duration_text(warm->stall_ns / warm->steps, stall, sizeof(stall)),
                     ms_decimal_text(ratio(warm->halts, warm->steps), halts, sizeof(halts)));
    add_bytes(out, "least that must move", warm->least_bytes / warm->steps);
    if (warm->least_bytes > 0) {
        ms_buffer_format(
            out, "  %-22s %12s\n", "moved / least",
            ms_decimal_text(ratio(moved_bytes(warm), warm->least_bytes), times, sizeof(times)));
    }
}

static void add_spill(const struct ms_replay_answer *answer, struct ms_buffer *out)
{
    const struct ms_replay_result *result = answer->result;
    const struct ms_spill_stats *spill = &result->pool.spill;
    char stall[MS_UNIT_TEXT_BYTES];

    if (answer->config->spill_bytes == 0) {
        return;
    }
    add_bytes(out, "spilled", spill->down_bytes);
    add_bytes(out, "promoted", spill->up_bytes);
    add_bytes(out, "used on the host", result->used_on_host_bytes);
    add_bytes(out, "peak spilled", spill->peak_spilled_bytes);
    if (spill->thrashed_bytes > 0) {
        add_bytes(out, "thrashed", spill->thrashed_bytes);
    }
    ms_buffer_format(out, "  %-22s %12s   (%" PRIu64 " standstills)\n", "estimated stall",
                     ms_duration_text(spill->stall_ns, stall, sizeof(stall)), spill->halts);
    add_warm(&result->warm, out);
}

static void add_warnings(const struct ms_replay_answer *answer, struct ms_buffer *out)
{
    const struct ms_recording *recording = answer->recording;
    const struct ms_replay_result *result = answer->result;

    if (recording->left_out > 0) {
        ms_buffer_format(out,
                         "  %" PRIu64 " operations were left out: the recording does not have the "
                         "allocation of their block or tensor\n",
                         recording->left_out);
    }
    if (recording->recycled_events + recording->damaged_windows > 0) {
        ms_buffer_format(out,
                         "  the recording is incomplete: %" PRIu64
                         " early events were overwritten, %" PRIu64 " parts are damaged\n",
                         recording->recycled_events, recording->damaged_windows);
    }
    if (result->invalid_reports > 0) {
        ms_buffer_format(
            out, "  %" PRIu64 " tensors were reported where the pool has no memory for them\n",
            result->invalid_reports);
    }
    if (result->violation[0]) {
        ms_buffer_add(out, "  A BUG IN THE POOL: ");
        ms_buffer_add_plain(out, result->violation);
        ms_buffer_add(out, "\n");
    }
}

void ms_replay_text(const struct ms_replay_answer *answer, struct ms_buffer *out)
{
    add_head(answer, out);
    add_sizes(answer, out);
    add_calls(answer, out);
    add_spill(answer, out);
    add_warnings(answer, out);
}

/* ---- JSON ---- */

static void json_decimal(struct ms_json *json, const char *key, int64_t millionths)
{
    char text[MS_UNIT_TEXT_BYTES];

    ms_json_number(json, key, ms_decimal_text(millionths, text, sizeof(text)));
}

static void json_limit(struct ms_json *json, const char *key, uint64_t bytes)
{
    if (bytes == 0 || bytes >= MS_REPLAY_AMPLE_BYTES) {
        ms_json_null(json, key);
    } else {
        ms_json_count(json, key, bytes);
    }
}

static void json_recording(struct ms_json *json, const struct ms_recording *recording)
{
    ms_json_open(json, "recording", '{');
    ms_json_count(json, "device", recording->device);
    ms_json_count(json, "operations", ms_recording_count(recording));
    ms_json_count(json, "allocations", recording->allocations);
    ms_json_count(json, "births", recording->tensor_allocations);
    ms_json_count(json, "pages_mapped", recording->maps);
    ms_json_count(json, "refused", recording->refused);
    ms_json_count(json, "fatal", recording->fatal);
    ms_json_count(json, "left_out", recording->left_out);
    ms_json_count(json, "recycled_events", recording->recycled_events);
    ms_json_count(json, "damaged_windows", recording->damaged_windows);
    ms_json_count(json, "end_live_bytes", recording->end_live_bytes);
    json_limit(json, "cap_bytes", recording->cap_bytes);
    json_limit(json, "device_bytes", recording->device_bytes);
    ms_json_close(json, '}');
}

static void json_failure(struct ms_json *json, const struct ms_replay_answer *answer)
{
    const struct ms_replay_failure *failure = &answer->result->failure;
    char sentence[SENTENCE], status[MS_UNIT_TEXT_BYTES];

    if (!failure->happened) {
        ms_json_null(json, "failure");
        return;
    }

    const struct ms_operation *operation = ms_recording_at(answer->recording, failure->operation);

    add_failure(answer, sentence, sizeof(sentence));
    ms_json_open(json, "failure", '{');
    ms_json_count(json, "operation", failure->operation + 1);
    ms_json_count(json, "time_us", operation->time_us);
    ms_json_text(json, "op", ms_operation_names[operation->kind]);
    ms_json_count(json, "bytes", operation->bytes);
    ms_json_text(json, "site", ms_recording_site_name(answer->recording, operation->site));
    ms_json_text(json, "reason", status_text(failure->status, status, sizeof(status)));
    ms_json_text(json, "verdict",
                 failure->status == MS_ERR_NO_MEMORY
                     ? ms_verdict_name(ms_verdict_parts(&failure->state, NULL, NULL, 0, NULL, 0))
                     : NULL);
    ms_json_count(json, "live_bytes", failure->live_bytes);
    ms_json_count(json, "charged_bytes", failure->charged_bytes);
    ms_json_count(json, "free_bytes", failure->free_bytes);
    ms_json_count(json, "hole_bytes", failure->hole_bytes);
    ms_json_count(json, "pending_bytes", failure->pending_bytes);
    ms_json_count(json, "largest_free_bytes", failure->largest_free_bytes);
    ms_json_text(json, "sentence", sentence);
    ms_json_close(json, '}');
}

static void json_calls(struct ms_json *json, const struct ms_replay_result *result)
{
    ms_json_open(json, "driver_calls", '{');
    for (int call = 0; call < MS_REPLAY_CALL_COUNT; call++) {
        ms_json_count(json, ms_replay_call_names[call], result->calls[call]);
    }
    ms_json_close(json, '}');
    ms_json_count(json, "driver_calls_total", result->driver_calls);
    ms_json_count(json, "modelled_ns", result->modelled_ns);
    ms_json_count(json, "modelled_p99_ns", result->modelled_p99_ns);
    ms_json_count(json, "chunk_moves", result->moves);
    ms_json_count(json, "holes_taken", result->pool.holes_taken);
    ms_json_count(json, "holes_backed", result->pool.holes_backed);
    ms_json_count(json, "views_made", result->pool.views_made);
}

static void json_rate(struct ms_json *json, const char *key, uint64_t calls, uint64_t moves,
                      uint64_t units)
{
    ms_json_open(json, key, '{');
    json_decimal(json, "driver_calls", ratio(calls, units));
    json_decimal(json, "chunk_moves", ratio(moves, units));
    ms_json_close(json, '}');
}

static void json_rates(struct ms_json *json, const struct ms_replay_result *result)
{
    json_rate(json, "per_1000_operations", result->driver_calls * 1000, result->moves * 1000,
              result->operations ? result->operations : 1);
    ms_json_count(json, "steps", result->steps);
    if (has_steps(result)) {
        json_rate(json, "per_step_after_second", result->calls_after_second_step,
                  result->moves_after_second_step, result->steps - 2);
    } else {
        ms_json_null(json, "per_step_after_second");
    }
    if (result->pool_operations > 0) {
        json_decimal(json, "pool_ns_per_operation",
                     ratio(result->pool_ns, result->pool_operations));
    } else {
        ms_json_null(json, "pool_ns_per_operation");
    }
    ms_json_count(json, "elapsed_ns", result->elapsed_ns);
}

static void json_warm(struct ms_json *json, const struct ms_replay_moved *warm)
{
    if (warm->steps == 0) {
        ms_json_null(json, "warm");
        return;
    }
    ms_json_open(json, "warm", '{');
    ms_json_count(json, "steps", warm->steps);
    ms_json_count(json, "spilled_bytes", warm->down_bytes);
    ms_json_count(json, "promoted_bytes", warm->up_bytes);
    ms_json_count(json, "used_on_host_bytes", warm->used_bytes);
    ms_json_count(json, "moved_bytes", moved_bytes(warm));
    ms_json_count(json, "least_bytes", warm->least_bytes);
    ms_json_count(json, "standstills", warm->halts);
    ms_json_count(json, "modelled_stall_ns", warm->stall_ns);
    ms_json_close(json, '}');
}

static void json_spill(struct ms_json *json, const struct ms_replay_answer *answer)
{
    const struct ms_spill_stats *spill = &answer->result->pool.spill;

    if (answer->config->spill_bytes == 0) {
        ms_json_null(json, "spill");
        return;
    }
    ms_json_open(json, "spill", '{');
    ms_json_count(json, "limit_bytes", answer->config->spill_bytes);
    ms_json_count(json, "spilled_bytes", spill->down_bytes);
    ms_json_count(json, "promoted_bytes", spill->up_bytes);
    ms_json_count(json, "used_on_host_bytes", answer->result->used_on_host_bytes);
    ms_json_count(json, "peak_spilled_bytes", spill->peak_spilled_bytes);
    ms_json_count(json, "thrashed_bytes", spill->thrashed_bytes);
    ms_json_count(json, "standstills", spill->halts);
    ms_json_count(json, "modelled_stall_ns", spill->stall_ns);
    ms_json_text(json, "policy", ms_spill_policy_names[answer->config->spill_policy]);
    json_warm(json, &answer->result->warm);
    ms_json_close(json, '}');
}

static void json_config(struct ms_json *json, const struct ms_replay_config *config)
{
    ms_json_text(json, "mode", mode_name(config->mode));
    ms_json_text(json, "policy", ms_policy_names[config->policy]);
    ms_json_count(json, "lag", config->lag);
    json_limit(json, "cap_bytes", config->cap_bytes);
    json_limit(json, "device_memory_bytes", config->device_bytes);
    ms_json_integer_unless(json, "host_limit_bytes", (int64_t)config->host_limit_bytes,
                           (int64_t)MS_REPLAY_AMPLE_BYTES);
}

void ms_replay_json(const struct ms_replay_answer *answer, struct ms_buffer *out)
{
    const struct ms_replay_result *result = answer->result;
    struct ms_json json = {.out = out};

    ms_json_open(&json, NULL, '{');
    ms_json_text(&json, "schema", SCHEMA);
    ms_json_text(&json, "trace", answer->trace);
    json_config(&json, answer->config);
    json_recording(&json, answer->recording);
    ms_json_flag(&json, "completed", !result->failure.happened);
    json_failure(&json, answer);
    ms_json_count(&json, "refused_tried", result->refused);
    ms_json_count(&json, "refused_served", result->refused_served);
    ms_json_count(&json, "peak_live_bytes", answer->recording->peak_live_bytes);
    ms_json_count(&json, "peak_wanted_bytes", answer->recording->peak_wanted_bytes);
    ms_json_count(&json, "peak_reserved_bytes", result->peak_reserved_bytes);
    ms_json_count(&json, "peak_charged_bytes", result->peak_charged_bytes);
    ms_json_count(&json, "peak_host_backed_bytes", result->peak_host_backed_bytes);
    if (answer->searched && answer->min_cap_bytes) {
        ms_json_count(&json, "min_cap_bytes", answer->min_cap_bytes);
        json_decimal(&json, "overhead_ratio",
                     ratio(answer->min_cap_bytes, answer->recording->peak_wanted_bytes));
        ms_json_count(&json, "replays", answer->replays);
    } else {
        ms_json_null(&json, "min_cap_bytes");
        ms_json_null(&json, "overhead_ratio");
        ms_json_count(&json, "replays", answer->searched ? answer->replays : 1);
    }
    json_calls(&json, result);
    json_rates(&json, result);
    json_spill(&json, answer);
    ms_json_count(&json, "invalid_reports", result->invalid_reports);
    ms_json_text(&json, "violation", result->violation[0] ? result->violation : NULL);
    ms_json_close(&json, '}');
    ms_buffer_add(out, "\n");
}
