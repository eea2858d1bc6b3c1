/* SPDX-License-Identifier: Apache-2.0 */
/* The rule that decides why an allocation failed, and the sentence that says it. */
#include "report/trace/verdict.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include "allocator/base/units.h"

/* Sums of a state that may be damaged: they stop at the largest value, and at 0. */
static uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

const char *ms_verdict_name(enum ms_verdict verdict)
{
    switch (verdict) {
    case MS_VERDICT_CAP:
        return "cap";
    case MS_VERDICT_FRAGMENTATION:
        return "fragmentation";
    case MS_VERDICT_OTHER_PROCESS:
        return "other_process";
    case MS_VERDICT_SPILL_LIMIT:
        return "spill_limit";
    case MS_VERDICT_NOT_DEVICE:
        return "not_device";
    case MS_VERDICT_DRIVER_LIMIT:
        return "driver_limit";
    case MS_VERDICT_GROWTH:
        return "growth";
    default:
        return "demand";
    }
}

/* What follows from a state. */
struct analysis {
    uint64_t wanted_bytes; /* the request, or what PyTorch asked for to put it in */
    uint64_t needed_bytes; /* charged, with all that could be given elsewhere given up, + request */
    uint64_t holes_bytes;  /* free inside chunks, but neither reclaimable nor waited for */
    uint64_t others_bytes;
    uint64_t room_bytes; /* what this process could charge at most: cap, and device - others */
    bool others_bind;    /* room is what others leave, not the cap */
    bool limit_binds;    /* room is what the driver's own limit leaves */
    bool torch_refused;  /* PyTorch gave up although the bytes were there, and asked nobody */
    uint64_t short_bytes;
};

/* What the driver's own limit leaves this process; UINT64_MAX where there is none, or where it does
 * not count: more is in use than it allows (a setting for MPS means nothing without MPS). */
static uint64_t driver_room(const struct ms_oom_state *state)
{
    const uint64_t held = minus(state->charged_bytes, state->context_bytes);
    const bool drivers =
        state->limited_by == MS_LIMITED_BY_CGROUP || state->limited_by == MS_LIMITED_BY_MPS;

    if (!drivers || state->limit_bytes == 0 || held > state->limit_bytes) {
        return UINT64_MAX;
    }
    return minus(state->limit_bytes, minus(state->limit_used_bytes, state->charged_bytes));
}

/* Where the driver's own limit is the tightest. The driver may say that only what its limit leaves
 * is free: then the rest seems to be other processes', more or less. */
static void apply_limit(const struct ms_oom_state *state, struct analysis *a)
{
    const uint64_t room = driver_room(state);
    const uint64_t left = minus(state->device_total_bytes, state->other_process_bytes);

    if (room < state->cap_bytes && room <= plus(left, left / 32)) {
        a->limit_binds = true;
        a->others_bind = false;
        a->room_bytes = room;
    }
}

static struct analysis analyse(const struct ms_oom_state *state)
{
    const uint64_t given = plus(state->reclaimable_bytes, state->pending_bytes);
    const bool forwarded = state->pinned_by == MS_PINNED_BY_POOL_OFF;
    const uint64_t chunks = plus(plus(state->pool_bytes, state->application_bytes),
                                 forwarded ? state->forwarded_bytes : 0);
    const uint64_t left = minus(state->device_total_bytes, state->other_process_bytes);
    const uint64_t wanted = larger(state->requested_bytes, state->refused_bytes);
    struct analysis a = {
        .wanted_bytes = wanted,
        .needed_bytes = plus(minus(state->charged_bytes, given), wanted),
        .holes_bytes = minus(minus(chunks, state->live_bytes), given),
        .others_bytes = state->other_process_bytes,
        .room_bytes = smaller(state->cap_bytes, left),
        .others_bind = left < state->cap_bytes,
    };

    apply_limit(state, &a);
    a.short_bytes = minus(a.needed_bytes, a.room_bytes);
    a.torch_refused =
        state->source == MS_OOM_TORCH && a.short_bytes == 0 && state->refused_bytes == 0;
    return a;
}

/* Whether something was spilled, and as much again as the request would have made it fit, but for
 * the limit. */
static bool is_limited(const struct ms_oom_state *state, const struct analysis *a)
{
    return state->spill_left_bytes < state->spill_limit_bytes &&
           a->wanted_bytes > state->spill_left_bytes && a->wanted_bytes <= a->room_bytes;
}

/* Whether neither the device nor the cap was in the way: the request would have fitted beside all
 * that was charged, in holes and out of them. */
static bool had_room(const struct ms_oom_state *state, const struct analysis *a)
{
    return state->driver_free_known && a->wanted_bytes <= state->driver_free_bytes &&
           a->wanted_bytes <= minus(state->cap_bytes, state->charged_bytes);
}

static enum ms_verdict decide(const struct ms_oom_state *state, const struct analysis *a)
{
    const uint64_t device = state->device_total_bytes;
    const bool fits_without_cap = plus(a->needed_bytes, a->others_bytes) <= device;
    const bool fits_without_holes = minus(a->needed_bytes, a->holes_bytes) <= a->room_bytes;
    const uint64_t cap_takes_bytes = minus(minus(device, a->others_bytes), state->cap_bytes);

    if (a->torch_refused) {
        return MS_VERDICT_CAP;
    }
    if (a->limit_binds && a->short_bytes > 0) {
        return minus(a->needed_bytes, a->holes_bytes) <= a->room_bytes ? MS_VERDICT_FRAGMENTATION
                                                                       : MS_VERDICT_DRIVER_LIMIT;
    }
    if (is_limited(state, a)) {
        return MS_VERDICT_SPILL_LIMIT;
    }
    if (a->short_bytes == 0) {
        return had_room(state, a) ? MS_VERDICT_NOT_DEVICE : MS_VERDICT_FRAGMENTATION;
    }
    /* Where either would have helped, the one that takes more away is the reason. */
    if (fits_without_holes && !(fits_without_cap && cap_takes_bytes > a->holes_bytes)) {
        return MS_VERDICT_FRAGMENTATION;
    }
    if (a->needed_bytes > device) {
        return MS_VERDICT_DEMAND;
    }
    if (fits_without_cap) {
        return MS_VERDICT_CAP;
    }
    return a->others_bind ? MS_VERDICT_OTHER_PROCESS : MS_VERDICT_CAP;
}

/* "the cap (41.80 GiB, fraction 0.95)", or what else was the limit. */
static void limit_text(const struct ms_oom_state *state, const struct analysis *a, char *text,
                       size_t text_bytes)
{
    char cap[MS_UNIT_TEXT_BYTES], fraction[MS_UNIT_TEXT_BYTES], others[MS_UNIT_TEXT_BYTES];

    if (a->limit_binds) {
        snprintf(text, text_bytes, "what the driver allows (%s)",
                 ms_bytes_text(state->limit_bytes, cap, sizeof(cap)));
        return;
    }
    if (a->others_bind && a->others_bytes > 0) {
        snprintf(text, text_bytes, "what other processes leave of the device (%s of %s)",
                 ms_bytes_text(a->room_bytes, others, sizeof(others)),
                 ms_bytes_text(state->device_total_bytes, cap, sizeof(cap)));
        return;
    }
    ms_bytes_text(state->cap_bytes, cap, sizeof(cap));
    if (state->fraction_known && state->fraction > 0 && state->fraction < 1) {
        snprintf(
            text, text_bytes, "the cap (%s, fraction %s)", cap,
            ms_decimal_text((int64_t)(state->fraction * 1e6 + 0.5), fraction, sizeof(fraction)));
    } else if (state->cap_bytes < state->device_total_bytes) {
        snprintf(text, text_bytes, "the cap (%s)", cap);
    } else {
        snprintf(text, text_bytes, "the device (%s)", cap);
    }
}

static void say_what(const struct ms_oom_state *state, const struct analysis *a, char *text,
                     size_t text_bytes)
{
    char asked[MS_UNIT_TEXT_BYTES], amount[MS_UNIT_TEXT_BYTES], limit[128], into[64] = "";

    ms_bytes_text(state->requested_bytes, asked, sizeof(asked));
    limit_text(state, a, limit, sizeof(limit));
    if (a->wanted_bytes > state->requested_bytes) {
        snprintf(into, sizeof(into), ", and PyTorch for %s to put it in",
                 ms_bytes_text(a->wanted_bytes, amount, sizeof(amount)));
    }
    if (a->short_bytes > 0) {
        snprintf(text, text_bytes, "asked for %s%s, %s short of %s", asked, into,
                 ms_bytes_text(a->short_bytes, amount, sizeof(amount)), limit);
    } else {
        snprintf(text, text_bytes, "asked for %s%s, with %s free below %s", asked, into,
                 ms_bytes_text(minus(a->room_bytes, minus(a->needed_bytes, a->wanted_bytes)),
                               amount, sizeof(amount)),
                 limit);
    }
}

static void say_demand(const struct ms_oom_state *state, const struct analysis *a, char *text,
                       size_t text_bytes)
{
    char sum[MS_UNIT_TEXT_BYTES], device[MS_UNIT_TEXT_BYTES], holes[MS_UNIT_TEXT_BYTES];

    ms_bytes_text(a->needed_bytes, sum, sizeof(sum));
    ms_bytes_text(state->device_total_bytes, device, sizeof(device));
    if (a->holes_bytes == 0) {
        snprintf(text, text_bytes,
                 "what is in use and the request come to %s on a device of %s, nothing is "
                 "fragmented",
                 sum, device);
    } else {
        snprintf(text, text_bytes,
                 "what is in use and the request come to %s on a device of %s; the %s in holes "
                 "would not have been enough",
                 sum, device, ms_bytes_text(a->holes_bytes, holes, sizeof(holes)));
    }
}

static void say_cap(const struct ms_oom_state *state, const struct analysis *a, char *text,
                    size_t text_bytes)
{
    char sum[MS_UNIT_TEXT_BYTES], device[MS_UNIT_TEXT_BYTES], holes[MS_UNIT_TEXT_BYTES];

    if (a->torch_refused) {
        if (state->limited_by == MS_LIMITED_BY_TORCH_CONF) {
            snprintf(text, text_bytes,
                     "the bytes were there, PyTorch itself refused: per_process_memory_fraction in "
                     "PYTORCH_ALLOC_CONF allows it %s, what it keeps cached included",
                     ms_bytes_text(state->limit_bytes, sum, sizeof(sum)));
            return;
        }
        snprintf(text, text_bytes,
                 "the bytes were there, PyTorch itself refused: its "
                 "set_per_process_memory_fraction counts what it keeps cached");
        return;
    }
    ms_bytes_text(a->needed_bytes, sum, sizeof(sum));
    ms_bytes_text(state->device_total_bytes, device, sizeof(device));
    if (a->holes_bytes == 0) {
        snprintf(text, text_bytes,
                 "what is in use and the request come to %s, which the device (%s) has; the cap "
                 "does not allow it",
                 sum, device);
    } else {
        snprintf(text, text_bytes,
                 "what is in use and the request come to %s, %s of it in holes; the device (%s) "
                 "has that, the cap does not allow it",
                 sum, ms_bytes_text(a->holes_bytes, holes, sizeof(holes)), device);
    }
}

/* " (because ...)", or nothing. */
static const char *pinned_text(const struct ms_oom_state *state)
{
    static const char *const texts[MS_PINNED_BY_COUNT] = {
        [MS_PINNED_BY_NOTHING] = "",
        [MS_PINNED_BY_TORCH_OFF] =
            " (they are PyTorch's, which MEMSHIM_TORCH=off leaves to itself)",
        [MS_PINNED_BY_POOL_OFF] = " (MEMSHIM_POOL=off: nothing is repaired)",
        [MS_PINNED_BY_CAPTURE] = " (CUDA graphs replay into what was allocated under a capture)",
        [MS_PINNED_BY_NO_HOST] = " (no host memory could stand in for them)",
        [MS_PINNED_BY_TENSORS] = " (beside live tensors, in pieces too small to be moved)",
        [MS_PINNED_BY_WORK] = "",
    };

    return state->pinned_by < MS_PINNED_BY_COUNT ? texts[state->pinned_by] : "";
}

static void say_fragmentation(const struct ms_oom_state *state, const struct analysis *a,
                              char *text, size_t text_bytes)
{
    char holes[MS_UNIT_TEXT_BYTES], largest[MS_UNIT_TEXT_BYTES], range[64] = "";

    if (state->pinned_by == MS_PINNED_BY_WORK) {
        snprintf(text, text_bytes,
                 "%s were freed, but queued work may still use them, and did not end while that "
                 "was waited for (MEMSHIM_WAIT_MS)",
                 ms_bytes_text(state->pending_bytes, holes, sizeof(holes)));
        return;
    }
    if (state->largest_free_bytes > 0) { /* else it is not known, or there is none */
        snprintf(range, sizeof(range), "; the largest free range was %s",
                 ms_bytes_text(state->largest_free_bytes, largest, sizeof(largest)));
    }
    if (a->holes_bytes == 0) {
        snprintf(text, text_bytes,
                 "the bytes were free, but in no range that could serve the request%s%s",
                 pinned_text(state), range);
        return;
    }
    snprintf(text, text_bytes, "%s lie free in holes that could not be given elsewhere%s%s",
             ms_bytes_text(a->holes_bytes, holes, sizeof(holes)), pinned_text(state), range);
}

/* "python3 (pid 4711): 1.90 GiB"; of a damaged trace the name may be anything. */
static int say_other(const struct ms_other_process *other, char *text, size_t text_bytes)
{
    char bytes[MS_UNIT_TEXT_BYTES], name[MS_OTHER_NAME_BYTES];
    size_t length = 0;

    for (; length + 1 < sizeof(name) && other->name[length]; length++) {
        const char letter = other->name[length];

        name[length] = '?';
        if (letter > ' ' && letter < 0x7f) {
            name[length] = letter;
        }
    }
    name[length] = '\0';
    ms_bytes_text(other->bytes, bytes, sizeof(bytes));
    return snprintf(text, text_bytes, "%s%spid %" PRIu64 ": %s", name, name[0] ? ", " : "",
                    other->pid, bytes);
}

void ms_others_text(const struct ms_others *others, char *text, size_t text_bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t i = 0; others->known && i < MS_OTHERS_NAMED && others->named[i].bytes > 0; i++) {
        char other[MS_UNIT_TEXT_BYTES * 3];

        (void)say_other(&others->named[i], other, sizeof(other));
        if (used + sizeof("; ") + sizeof(other) > text_bytes) {
            break;
        }
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%s", i ? "; " : "", other);
    }
}

static void say_others(const struct ms_oom_state *state, const struct analysis *a, char *text,
                       size_t text_bytes)
{
    char others[MS_UNIT_TEXT_BYTES], sum[MS_UNIT_TEXT_BYTES], who[MS_SENTENCE_BYTES / 4];

    ms_others_text(&state->others, who, sizeof(who));
    snprintf(text, text_bytes,
             "other processes hold %s of the device%s%s%s; without them the %s in use and asked "
             "for would have fitted",
             ms_bytes_text(a->others_bytes, others, sizeof(others)), who[0] ? " (" : "", who,
             who[0] ? ")" : "", ms_bytes_text(a->needed_bytes, sum, sizeof(sum)));
}

static void say_limit(const struct ms_oom_state *state, const struct analysis *a, char *text,
                      size_t text_bytes)
{
    char used[MS_UNIT_TEXT_BYTES], limit[MS_UNIT_TEXT_BYTES], enough[MS_UNIT_TEXT_BYTES];
    const uint64_t used_bytes = minus(state->spill_limit_bytes, state->spill_left_bytes);

    snprintf(text, text_bytes,
             "%s of the %s of host memory that live memory may move to are taken; with %s of it "
             "(MEMSHIM_SPILL_LIMIT) the request would have fitted",
             ms_bytes_text(used_bytes, used, sizeof(used)),
             ms_bytes_text(state->spill_limit_bytes, limit, sizeof(limit)),
             ms_bytes_text(plus(used_bytes, a->wanted_bytes), enough, sizeof(enough)));
}

static void say_driver_limit(const struct ms_oom_state *state, const struct analysis *a, char *text,
                             size_t text_bytes)
{
    char limit[MS_UNIT_TEXT_BYTES], used[MS_UNIT_TEXT_BYTES], sum[MS_UNIT_TEXT_BYTES];

    ms_bytes_text(state->limit_bytes, limit, sizeof(limit));
    ms_bytes_text(a->needed_bytes, sum, sizeof(sum));
    if (state->limited_by == MS_LIMITED_BY_CGROUP) {
        snprintf(text, text_bytes,
                 "the control group of this process may have %s of the device (dmem.max) and has "
                 "%s; what is in use and the request come to %s",
                 limit, ms_bytes_text(state->limit_used_bytes, used, sizeof(used)), sum);
        return;
    }
    snprintf(text, text_bytes,
             "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT allows this process %s of the device; what is in "
             "use and the request come to %s",
             limit, sum);
}

static void say_not_device(const struct ms_oom_state *state, const struct analysis *a, char *text,
                           size_t text_bytes)
{
    char left[MS_UNIT_TEXT_BYTES];

    (void)a;
    snprintf(text, text_bytes,
             "the driver says that %s are free, and the cap allows the request: something else was "
             "missing, such as host memory, address space (ulimit -v) or room in a memory pool of "
             "fixed size, or MPS has a limit, or the bytes came free just then",
             ms_bytes_text(state->driver_free_bytes, left, sizeof(left)));
}

enum ms_verdict ms_verdict_parts(const struct ms_oom_state *state, uint64_t *short_bytes,
                                 char *what, size_t what_bytes, char *why, size_t why_bytes)
{
    static void (*const say[MS_VERDICT_COUNT])(const struct ms_oom_state *, const struct analysis *,
                                               char *, size_t) = {
        [MS_VERDICT_DEMAND] = say_demand,
        [MS_VERDICT_CAP] = say_cap,
        [MS_VERDICT_FRAGMENTATION] = say_fragmentation,
        [MS_VERDICT_OTHER_PROCESS] = say_others,
        [MS_VERDICT_SPILL_LIMIT] = say_limit,
        [MS_VERDICT_NOT_DEVICE] = say_not_device,
        [MS_VERDICT_DRIVER_LIMIT] = say_driver_limit,
    };
    const struct analysis a = analyse(state);
    const enum ms_verdict verdict = decide(state, &a);
    char reason[MS_SENTENCE_BYTES / 2] = "";

    if (short_bytes) {
        *short_bytes = a.short_bytes;
    }
    if (what) {
        say_what(state, &a, what, what_bytes);
    }
    if (why) {
        say[verdict](state, &a, reason, sizeof(reason));
        snprintf(why, why_bytes, "%s: %s", ms_verdict_name(verdict), reason);
    }
    return verdict;
}

enum ms_verdict ms_verdict_decide(const struct ms_oom_state *state, uint64_t *short_bytes,
                                  char *sentence, size_t sentence_bytes)
{
    char what[MS_SENTENCE_BYTES / 2], why[MS_SENTENCE_BYTES / 2];
    const enum ms_verdict verdict =
        ms_verdict_parts(state, short_bytes, what, sizeof(what), why, sizeof(why));

    snprintf(sentence, sentence_bytes, "OUT OF MEMORY: %s. %s.", what, why);
    return verdict;
}
