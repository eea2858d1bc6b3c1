/* SPDX-License-Identifier: Apache-2.0 */
/* report.txt: the memory that would have been enough. */
#include <inttypes.h>

#include "allocator/base/units.h"
#include "report/model/verdict/what_if.h"
#include "report/render/text/parts.h"
#include "report/trace/verdict_rule.h"

#define MIB (UINT64_C(1) << 20)

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
        ms_decimal_text(ms_what_if_fraction(cap->cap_bytes, device_bytes), number, sizeof(number)));
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
