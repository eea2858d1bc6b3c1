/* SPDX-License-Identifier: Apache-2.0 */
/* The rule that decides why an allocation failed, and the terms it uses. docs/report.md explains
 * both. */
#include "report/trace/verdict_rule.h"

#include "allocator/base/arithmetic.h"

#define NOTHING_LEFT_PART 100 /* of a bound: less than this part of it left beside the need */

/* ---- the terms; sums that cannot overflow, for the state may be damaged ---- */

/* The bytes that the driver's own limit leaves this process; UINT64_MAX: there is none, or it does
 * not count. It does not if more is in use than it allows (a setting for MPS means nothing without
 * MPS), or if something else is tighter. */
static uint64_t driver_bytes(const struct ms_oom_state *state)
{
    const uint64_t held = ms_less(state->charged_bytes, state->context_bytes);
    const uint64_t left = ms_less(state->device_total_bytes, state->other_process_bytes);
    const bool drivers =
        state->limited_by == MS_LIMITED_BY_CGROUP || state->limited_by == MS_LIMITED_BY_MPS;

    if (!drivers || state->limit_bytes == 0 || held > state->limit_bytes) {
        return UINT64_MAX;
    }

    const uint64_t room =
        ms_less(state->limit_bytes, ms_less(state->limit_used_bytes, state->charged_bytes));

    /* The driver may report as free only what its limit leaves: the rest then looks like other
     * processes' memory, more or less. */
    return room < state->cap_bytes && room <= ms_plus(left, left / 32) ? room : UINT64_MAX;
}

/* An older trace counts memory on the host as live on the device, except the part that cannot fit
 * there. Of movable memory it only has whether a limit prevented the move. */
static void guess_terms(const struct ms_oom_state *state, struct ms_verdict_terms *terms)
{
    const bool forwarded = state->pinned_by == MS_PINNED_BY_POOL_OFF;
    const uint64_t chunks = ms_plus(ms_plus(state->pool_bytes, state->application_bytes),
                                    forwarded ? state->forwarded_bytes : 0);
    const uint64_t given = ms_plus(state->reclaimable_bytes, state->pending_bytes);
    const bool limited = state->spill_left_bytes < state->spill_limit_bytes &&
                         terms->piece_bytes > state->spill_left_bytes;

    terms->fixed_bytes = ms_less(state->charged_bytes, chunks);
    terms->live_bytes = ms_least(state->live_bytes, ms_less(chunks, given));
    terms->movable_bytes = limited ? terms->live_bytes : 0;
}

struct ms_verdict_terms ms_verdict_terms(const struct ms_oom_state *state)
{
    const uint64_t device = state->device_total_bytes;
    struct ms_verdict_terms terms = {
        .pending_bytes = state->pending_bytes,
        .request_bytes = state->requested_bytes,
        .piece_bytes = ms_most(state->requested_bytes, state->refused_bytes),
        .device_bytes = device,
        .others_leave_bytes = ms_less(device, state->other_process_bytes),
        .driver_bytes = driver_bytes(state),
        .cap_bytes = ms_least(state->cap_bytes, device),
    };

    if (terms.driver_bytes < UINT64_MAX) {
        terms.others_leave_bytes = device;
    }
    if (state->terms_known) {
        terms.fixed_bytes = state->fixed_bytes;
        /* What was born in a hole whose memory had gone elsewhere may lie on the host as well. */
        terms.live_bytes = ms_least(ms_less(state->live_bytes, state->spilled_bytes),
                                    ms_less(state->charged_bytes, state->fixed_bytes));
        terms.movable_bytes = ms_least(state->movable_bytes, terms.live_bytes);
    } else {
        guess_terms(state, &terms);
    }
    terms.spillable_bytes = ms_least(terms.movable_bytes, state->spill_left_bytes);
    terms.hole_bytes =
        ms_less(state->charged_bytes,
                ms_plus(terms.fixed_bytes, ms_plus(terms.live_bytes, terms.pending_bytes)));
    terms.free_bytes = ms_less(ms_verdict_room_bytes(&terms), state->charged_bytes);
    if (state->driver_free_known) {
        terms.free_bytes = ms_least(terms.free_bytes, state->driver_free_bytes);
    }
    const bool gave_up =
        state->source == MS_OOM_TORCH && state->refused_bytes == 0 &&
        terms.piece_bytes <=
            ms_plus(terms.free_bytes, ms_plus(state->reclaimable_bytes, terms.pending_bytes));

    terms.torch_refused = gave_up && state->driver_error == 0;
    terms.driver_error = gave_up ? state->driver_error : 0;
    terms.of_host = state->source == MS_OOM_HOST;
    return terms;
}

/* ---- the rule ---- */

static enum ms_verdict nearest(const struct ms_verdict_terms *terms, uint64_t *bytes)
{
    enum ms_verdict verdict = MS_VERDICT_DEMAND;

    *bytes = terms->device_bytes;
    if (terms->cap_bytes < *bytes) {
        *bytes = terms->cap_bytes;
        verdict = MS_VERDICT_CAP;
    }
    if (terms->driver_bytes < *bytes) {
        *bytes = terms->driver_bytes;
        verdict = MS_VERDICT_DRIVER_LIMIT;
    }
    if (terms->others_leave_bytes < *bytes) {
        *bytes = terms->others_leave_bytes;
        verdict = MS_VERDICT_OTHER_PROCESS;
    }
    return verdict;
}

uint64_t ms_verdict_room_bytes(const struct ms_verdict_terms *terms)
{
    uint64_t bytes;

    (void)nearest(terms, &bytes);
    return bytes;
}

enum ms_verdict ms_verdict_nearest(const struct ms_verdict_terms *terms)
{
    uint64_t bytes;

    return nearest(terms, &bytes);
}

uint64_t ms_verdict_need_bytes(const struct ms_verdict_terms *terms)
{
    return ms_less(ms_plus(ms_plus(terms->fixed_bytes, terms->live_bytes), terms->request_bytes),
                   terms->spillable_bytes);
}

bool ms_verdict_nothing_left(const struct ms_verdict_terms *terms)
{
    const uint64_t room = ms_verdict_room_bytes(terms);

    return ms_verdict_need_bytes(terms) > room - room / NOTHING_LEFT_PART;
}

uint64_t ms_verdict_lacking_bytes(const struct ms_verdict_terms *terms)
{
    return ms_less(terms->piece_bytes, terms->free_bytes);
}

/* Whether P and H together make up what the piece lacks. */
static bool lacked_holes(const struct ms_verdict_terms *terms)
{
    const uint64_t lacking = ms_verdict_lacking_bytes(terms);

    return lacking > 0 && lacking <= ms_plus(terms->hole_bytes, terms->pending_bytes);
}

/* The bytes in use and the piece, less the bytes that the host would take. */
static uint64_t with_piece(const struct ms_verdict_terms *terms, uint64_t to_host_bytes)
{
    return ms_less(ms_plus(ms_plus(terms->fixed_bytes, terms->live_bytes), terms->piece_bytes),
                   to_host_bytes);
}

/* Counts as limited also if the bytes would just fit, but lay in the last corners of a full
 * device. */
static bool only_spilling_is_limited(const struct ms_verdict_terms *terms)
{
    const uint64_t room = ms_verdict_room_bytes(terms);
    const bool full = ms_verdict_nothing_left(terms) && ms_verdict_lacking_bytes(terms) > 0;

    return (full || with_piece(terms, terms->spillable_bytes) > room) &&
           terms->movable_bytes > terms->spillable_bytes &&
           with_piece(terms, terms->movable_bytes) <= room;
}

/* Whether only queued work stood in the way: its end would have served the request. */
static bool only_work_is_in_the_way(const struct ms_verdict_terms *terms)
{
    return ms_verdict_lacking_bytes(terms) <= terms->pending_bytes;
}

enum ms_verdict ms_verdict_rule(const struct ms_verdict_terms *terms)
{
    const uint64_t need = ms_verdict_need_bytes(terms);
    const uint64_t room = ms_verdict_room_bytes(terms);

    if (terms->of_host) {
        return MS_VERDICT_NOT_DEVICE;
    }
    if (only_spilling_is_limited(terms)) {
        return MS_VERDICT_SPILL_LIMIT;
    }
    if (need > terms->device_bytes) {
        return MS_VERDICT_DEMAND;
    }
    if (terms->others_leave_bytes < terms->cap_bytes && need > terms->others_leave_bytes) {
        return MS_VERDICT_OTHER_PROCESS;
    }
    if (terms->driver_bytes < terms->cap_bytes && need > terms->driver_bytes) {
        return MS_VERDICT_DRIVER_LIMIT;
    }
    if (need > terms->cap_bytes || terms->torch_refused) {
        return MS_VERDICT_CAP;
    }
    if (ms_verdict_lacking_bytes(terms) == 0 || terms->driver_error != 0) {
        return MS_VERDICT_NOT_DEVICE;
    }
    if (ms_verdict_nothing_left(terms) && !only_work_is_in_the_way(terms)) {
        return ms_verdict_nearest(terms);
    }
    if (lacked_holes(terms)) {
        return MS_VERDICT_FRAGMENTATION;
    }
    return with_piece(terms, terms->spillable_bytes) > room ? ms_verdict_nearest(terms)
                                                            : MS_VERDICT_NOT_DEVICE;
}
