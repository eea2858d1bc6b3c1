/* SPDX-License-Identifier: Apache-2.0 */
/* What-if results: the memory that would have been enough, in the forms. */
#include "report/render/what_if.h"

#include <inttypes.h>

#include "allocator/base/buffer.h"
#include "allocator/base/json.h"
#include "allocator/base/units.h"
#include "report/model/model.h"
#include "report/model/verdict/what_if.h"
#include "report/trace/verdict_rule.h"

#define MILLIONTHS 1000000
#define MIB        (UINT64_C(1) << 20)

/* In millionths, rounded up to whole thousandths, so that the cap is not smaller. */
static int64_t fraction(uint64_t cap_bytes, uint64_t device_bytes)
{
    return (int64_t)((double)cap_bytes / (double)device_bytes * 1000 + 0.999) * 1000;
}

/* ---- report.json ---- */

static void add_fraction(struct ms_json *json, const char *key, uint64_t cap_bytes,
                         uint64_t device_bytes)
{
    char number[MS_UNIT_TEXT_BYTES];

    if (cap_bytes == 0 || cap_bytes > device_bytes) {
        ms_json_null(json, key);
    } else {
        ms_json_number(json, key,
                       ms_decimal_text(fraction(cap_bytes, device_bytes), number, sizeof(number)));
    }
}

static void add_cap(struct ms_json *json, const char *key, const struct ms_what_if_cap *cap,
                    uint64_t device_bytes)
{
    if (cap->cap_bytes == 0) {
        ms_json_null(json, key);
        return;
    }
    ms_json_open(json, key, '{');
    ms_json_count(json, "cap_bytes", cap->cap_bytes);
    add_fraction(json, "fraction", cap->cap_bytes, device_bytes);
    ms_json_count(json, "too_small_bytes", cap->too_small_bytes);
    ms_json_count(json, "peak_host_bytes", cap->host_bytes);
    ms_json_close(json, '}');
}

void ms_what_if_json(struct ms_json *json, const struct ms_model *model)
{
    const struct ms_what_if *found = &model->what_if;

    if (!found->tried && !found->why) {
        ms_json_null(json, "what_if");
        return;
    }
    ms_json_open(json, "what_if", '{');
    ms_json_text(json, "why", found->why);
    ms_json_count(json, "oom", found->oom);
    ms_json_count(json, "request_bytes", found->request_bytes);
    add_cap(json, "without_spill", &found->plain, found->device_bytes);
    add_cap(json, "with_spill", &found->spilled, found->device_bytes);
    if (found->tried) {
        ms_json_flag(json, "own_cap_with_spill", found->own_cap_spilled);
    } else {
        ms_json_null(json, "own_cap_with_spill");
    }
    ms_json_count(json, "own_cap_host_bytes", found->own_cap_host_bytes);
    ms_json_count(json, "replays", found->replays);
    ms_json_close(json, '}');
}

/* As a decimal: 1 is the same. */
static void add_ratio(struct ms_json *json, const char *key, uint64_t bytes, uint64_t of_bytes)
{
    char number[MS_UNIT_TEXT_BYTES];

    if (bytes == 0 || of_bytes == 0) {
        ms_json_null(json, key);
    } else {
        ms_json_number(json, key,
                       ms_decimal_text((int64_t)((double)bytes / (double)of_bytes * 1e6 + 0.5),
                                       number, sizeof(number)));
    }
}

void ms_overhead_json(struct ms_json *json, const struct ms_model *model, int device)
{
    const struct ms_overhead *found = &model->what_if.overhead;
    const bool known = found->min_cap_bytes > 0 && found->device == device;

    if (!known && !(found->why && found->device == device)) {
        ms_json_null(json, "overhead");
        return;
    }
    ms_json_open(json, "overhead", '{');
    ms_json_text(json, "why", found->why);
    ms_json_count(json, "min_cap_bytes", found->min_cap_bytes);
    add_ratio(json, "ratio", found->min_cap_bytes, found->peak_live_bytes);
    add_ratio(json, "torch_ratio", ms_what_if_alone_bytes(model, device),
              ms_aggregate_peak_live(&model->devices[device].sums).live_bytes);
    if (found->part_events > 0) {
        ms_json_count(json, "part_events", found->part_events);
    } else {
        ms_json_null(json, "part_events");
    }
    ms_json_count(json, "replays", found->replays);
    ms_json_close(json, '}');
}

/* ---- report.txt ---- */

/* "a cap of 732.0 MiB (fraction 0.03)", or "(MEMSHIM_LIMIT=732MiB)" where that set the cap. No cap
 * is larger than the device. */
static void add_cap_text(struct ms_buffer *out, const struct ms_what_if_cap *cap,
                         uint64_t device_bytes, const struct ms_oom_state *state)
{
    char number[MS_UNIT_TEXT_BYTES];

    if (cap->cap_bytes > device_bytes) {
        ms_buffer_format(out, "on a device of %s, larger than this one", MS_BYTES(cap->cap_bytes));
        return;
    }
    if (!state->fraction_known && state->cap_bytes < device_bytes) {
        ms_buffer_format(out, "under a cap of %s (MEMSHIM_LIMIT=%" PRIu64 "MiB)",
                         MS_BYTES(cap->cap_bytes), (cap->cap_bytes + MIB - 1) / MIB);
        return;
    }
    ms_buffer_format(
        out, "under a cap of %s (fraction %s)", MS_BYTES(cap->cap_bytes),
        ms_decimal_text(fraction(cap->cap_bytes, device_bytes), number, sizeof(number)));
}

/* A cap does not provide memory that others hold. */
static void add_plain_text(struct ms_buffer *out, const struct ms_what_if *found,
                           const struct ms_oom_state *state)
{
    const struct ms_verdict_terms terms = ms_verdict_terms(state);

    if (found->plain.cap_bytes == 0) {
        ms_buffer_add(out, "this request fails under every cap that was tried");
    } else if (ms_verdict_nearest(&terms) == MS_VERDICT_OTHER_PROCESS) {
        ms_buffer_format(out, "this request succeeds if this process may have %s; others left %s",
                         MS_BYTES(found->plain.cap_bytes), MS_BYTES(found->room_bytes));
    } else {
        ms_buffer_add(out, "this request succeeds ");
        add_cap_text(out, &found->plain, found->device_bytes, state);
    }
}

static void add_spilled_text(struct ms_buffer *out, const struct ms_what_if *found,
                             const struct ms_oom_state *state)
{
    if (found->own_cap_spilled && state->spill_limit_bytes > 0) {
        ms_buffer_format(out, "; or with the same device memory and a MEMSHIM_SPILL_LIMIT above %s",
                         MS_BYTES(found->own_cap_host_bytes));
    } else if (found->own_cap_spilled) {
        ms_buffer_format(out,
                         "; or with the same device memory and MEMSHIM_SPILL=auto, which would "
                         "have moved %s of live memory to the host",
                         MS_BYTES(found->own_cap_host_bytes));
    } else if (ms_unspilled_text(state)) {
        ms_buffer_format(out, "; %s", ms_unspilled_text(state));
    } else if (found->spilled.cap_bytes > 0 && found->spilled.host_bytes > 0) {
        ms_buffer_add(out, "; with spilling ");
        add_cap_text(out, &found->spilled, found->device_bytes, state);
        ms_buffer_format(out, ", with %s of live memory on the host",
                         MS_BYTES(found->spilled.host_bytes));
    }
}

void ms_what_if_text(struct ms_buffer *out, const struct ms_model *model, bool rest_follows)
{
    const struct ms_what_if *found = &model->what_if;

    if (!found->tried) {
        if (found->why) {
            ms_buffer_format(out, "  tried  nothing: %s\n", found->why);
        }
        return;
    }

    const struct ms_oom_state *state = &ms_model_oom_at(model, found->oom)->record.state;

    ms_buffer_add(out, "  tried  ");
    add_plain_text(out, found, state);
    add_spilled_text(out, found, state);
    ms_buffer_format(out,
                     "\n         (the least for this one request, by a replay of the run up to it; "
                     "%s: take it as a bound, not as a setting)\n",
                     rest_follows ? "the rest of the step was still to come, and needs more"
                                  : "what comes after it was not seen, and may need more");
}
