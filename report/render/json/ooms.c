/* SPDX-License-Identifier: Apache-2.0 */
/* report.json's list of out-of-memories, with the terms of each verdict. */
#include <stdio.h>
#include <string.h>

#include "allocator/base/units.h"
#include "report/model/ledger.h"
#include "report/model/verdict/verdict_report.h"
#include "report/render/json/parts.h"
#include "report/trace/verdict_rule.h"

/* Other processes with memory on the device; null: NVML had no list. */
static void add_others(struct ms_json *json, const struct ms_others *others)
{
    if (!others->known) {
        ms_json_null(json, "other_processes");
        return;
    }
    ms_json_open(json, "other_processes", '[');
    for (size_t i = 0; i < MS_OTHERS_NAMED && others->named[i].bytes > 0; i++) {
        const struct ms_other_process *other = &others->named[i];

        ms_json_open(json, NULL, '{');
        ms_json_count(json, "pid", other->pid);
        ms_json_part(json, "name", other->name, strnlen(other->name, sizeof(other->name)));
        ms_json_count(json, "bytes", other->bytes);
        ms_json_close(json, '}');
    }
    ms_json_close(json, ']');
}

static void add_limit(struct ms_json *json, const struct ms_oom_state *state)
{
    static const char *const names[MS_LIMITED_BY_COUNT] = {
        [MS_LIMITED_BY_CGROUP] = "cgroup",
        [MS_LIMITED_BY_MPS] = "mps",
        [MS_LIMITED_BY_TORCH_CONF] = "torch",
    };

    if (state->limited_by >= MS_LIMITED_BY_COUNT || !names[state->limited_by]) {
        ms_json_null(json, "driver_limit");
        return;
    }
    ms_json_open(json, "driver_limit", '{');
    ms_json_text(json, "by", names[state->limited_by]);
    ms_json_count(json, "bytes", state->limit_bytes);
    ms_json_count(json, "used_bytes", state->limit_used_bytes);
    ms_json_close(json, '}');
}

/* Null: the cap was the process's own. */
static void add_shared_cap(struct ms_json *json, const struct ms_shared_cap *shared)
{
    const struct ms_other_process *largest = &shared->largest;

    if (shared->bytes == 0) {
        ms_json_null(json, "shared_cap");
        return;
    }
    ms_json_open(json, "shared_cap", '{');
    ms_json_count(json, "bytes", shared->bytes);
    ms_json_count(json, "others", shared->others);
    ms_json_count(json, "others_bytes", shared->others_bytes);
    if (shared->others == 0) {
        ms_json_null(json, "largest");
    } else {
        ms_json_open(json, "largest", '{');
        ms_json_integer(json, "rank", shared->largest_rank);
        ms_json_count(json, "pid", largest->pid);
        ms_json_part(json, "name", largest->name, strnlen(largest->name, sizeof(largest->name)));
        ms_json_count(json, "bytes", largest->bytes);
        ms_json_close(json, '}');
    }
    ms_json_close(json, '}');
}

/* The terms of the rule, so that anybody can repeat the decision. */
static void add_terms(struct ms_json *json, const struct ms_oom_state *state)
{
    const struct ms_verdict_terms terms = ms_verdict_terms(state);

    ms_json_open(json, "rule", '{');
    ms_json_text(json, "verdict", ms_verdict_name(ms_verdict_rule(&terms)));
    ms_json_count(json, "fixed_bytes", terms.fixed_bytes);
    ms_json_count(json, "live_bytes", terms.live_bytes);
    ms_json_count(json, "waiting_bytes", terms.pending_bytes);
    ms_json_count(json, "request_bytes", terms.request_bytes);
    ms_json_count(json, "hole_bytes", terms.hole_bytes);
    ms_json_count(json, "spillable_bytes", terms.spillable_bytes);
    ms_json_count(json, "spillable_without_limit_bytes", terms.movable_bytes);
    ms_json_count(json, "need_bytes", ms_verdict_need_bytes(&terms));
    ms_json_count(json, "piece_bytes", terms.piece_bytes);
    ms_json_count(json, "free_bytes", terms.free_bytes);
    ms_json_count(json, "device_bytes", terms.device_bytes);
    ms_json_count(json, "others_leave_bytes", terms.others_leave_bytes);
    ms_json_count(json, "cap_bytes", terms.cap_bytes);
    if (terms.driver_bytes == UINT64_MAX) {
        ms_json_null(json, "driver_leaves_bytes");
    } else {
        ms_json_count(json, "driver_leaves_bytes", terms.driver_bytes);
    }
    ms_json_flag(json, "torch_refused", terms.torch_refused);
    if (terms.driver_error == 0) {
        ms_json_null(json, "driver_error");
    } else {
        ms_json_count(json, "driver_error", terms.driver_error);
    }
    ms_json_flag(json, "of_host", terms.of_host);
    ms_json_close(json, '}');
}

/* Null: unknown. */
static const char *grad_mode(uint64_t mode)
{
    return mode == MS_GRAD_ON ? "on" : mode == MS_GRAD_OFF ? "off" : NULL;
}

static void add_oom(struct ms_json *json, const struct ms_model *model, size_t index)
{
    const struct ms_model_oom *oom = ms_model_oom_at(model, index);
    struct ms_ledger_row rows[MS_LEDGER_ROWS];
    struct ms_judgement judgement;
    char sentence[4 * MS_SENTENCE_BYTES];

    ms_judge(model, index, &judgement);
    (void)snprintf(sentence, sizeof(sentence), "OUT OF MEMORY: %s. %s.%s%s%s", judgement.what,
                   judgement.why, judgement.beside[0] ? " Beside it, " : "", judgement.beside,
                   judgement.beside[0] ? "." : "");
    ms_json_open(json, NULL, '{');
    ms_json_count(json, "time_ns", oom->time_ns);
    ms_json_count(json, "device", oom->device);
    ms_json_text(json, "source",
                 oom->record.state.source == MS_OOM_TORCH  ? "torch"
                 : oom->record.state.source == MS_OOM_HOST ? "host"
                                                           : "driver");
    ms_json_count(json, "site", oom->record.state.site);
    ms_json_add_site_line(json, "line", model, oom->record.state.site);
    ms_json_count(json, "requested_bytes", oom->record.state.requested_bytes);
    ms_json_count(json, "short_bytes", oom->short_bytes);
    ms_json_count(json, "asked_times", oom->times);
    if (judgement.step > 0) {
        ms_json_count(json, "step", judgement.step);
    } else {
        ms_json_null(json, "step");
    }
    if (judgement.fitting_factor > 0) {
        char number[MS_UNIT_TEXT_BYTES];

        ms_json_number(
            json, "estimated_factor_that_fits",
            ms_decimal_text((int64_t)(judgement.fitting_factor * 1e6), number, sizeof(number)));
    } else {
        ms_json_null(json, "estimated_factor_that_fits");
    }
    if (judgement.most_factor > 0) {
        char number[MS_UNIT_TEXT_BYTES];

        ms_json_number(
            json, "factor_at_most",
            ms_decimal_text((int64_t)(judgement.most_factor * 1e6) + 1, number, sizeof(number)));
    } else {
        ms_json_null(json, "factor_at_most");
    }
    if (judgement.least_factor > 0) {
        char number[MS_UNIT_TEXT_BYTES];

        ms_json_number(
            json, "estimated_factor_at_least",
            ms_decimal_text((int64_t)(judgement.least_factor * 1e6), number, sizeof(number)));
    } else {
        ms_json_null(json, "estimated_factor_at_least");
    }
    ms_json_text(json, "verdict", ms_verdict_name(judgement.verdict));
    ms_json_text(json, "sentence", sentence);
    ms_json_count(json, "largest_free_bytes", oom->record.state.largest_free_bytes);
    ms_json_flag(json, "evaluating", oom->evaluating);
    ms_json_flag(json, "recovered", oom->recovered);
    ms_json_text(json, "outcome", ms_model_oom_outcome(model, index));
    ms_json_text(json, "grad_mode", grad_mode(oom->record.state.grad_mode));
    ms_json_flag(json, "judged", index == ms_judged_fatal(model));
    ms_json_count(json, "waiting_bytes", oom->record.state.pending_bytes);
    add_others(json, &oom->record.state.others);
    add_limit(json, &oom->record.state);
    add_shared_cap(json, &oom->record.state.shared);
    add_terms(json, &oom->record.state);
    ms_json_add_ledger(json, rows, ms_ledger_at_oom(model, index, rows));
    ms_json_add_oom_kinds(json, model, index);
    ms_json_close(json, '}');
}

void ms_json_add_ooms(struct ms_json *json, const struct ms_model *model, size_t most)
{
    const size_t count = ms_model_oom_count(model);

    ms_json_open(json, "oom_events", '[');
    for (size_t i = count > most ? count - most : 0; i < count; i++) {
        add_oom(json, model, i);
    }
    ms_json_close(json, ']');
}
