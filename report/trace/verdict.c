/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the sentence that says why an allocation failed. */
#include "report/trace/verdict.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include "allocator/base/arithmetic.h"
#include "allocator/base/units.h"
#include "report/trace/verdict_rule.h"

#define UNIT_OF_SUMS (UINT64_C(1) << 20)

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

/* Values derived from a state. */
struct analysis {
    struct ms_verdict_terms terms;
    enum ms_verdict nearest; /* the tightest of the bounds */
    uint64_t need_bytes, room_bytes;
    uint64_t to_be_had_bytes; /* uncharged, or free in chunks that seemed usable */
    uint64_t short_bytes;
};

static struct analysis analyse(const struct ms_oom_state *state)
{
    struct analysis a = {.terms = ms_verdict_terms(state)};
    const uint64_t given = ms_plus(state->reclaimable_bytes, state->pending_bytes);
    const uint64_t in_the_way = ms_less(state->charged_bytes, given);

    a.nearest = ms_verdict_nearest(&a.terms);
    a.need_bytes = ms_verdict_need_bytes(&a.terms);
    a.room_bytes = ms_verdict_room_bytes(&a.terms);
    a.to_be_had_bytes = ms_less(a.room_bytes, in_the_way);
    a.short_bytes = ms_less(ms_plus(in_the_way, a.terms.piece_bytes), a.room_bytes);
    if (a.short_bytes == 0 && !a.terms.torch_refused && a.terms.driver_error == 0) {
        a.short_bytes = ms_verdict_lacking_bytes(&a.terms);
    }
    a.short_bytes = a.terms.of_host ? 0 : a.short_bytes; /* the device lacks nothing */
    return a;
}

/* In a unit in which a sum with the short bytes adds up. */
#define ADDEND(bytes) \
    ms_bytes_text_beside((bytes), least_bytes, (char[MS_UNIT_TEXT_BYTES]){0}, MS_UNIT_TEXT_BYTES)

void ms_verdict_sum_text(const struct ms_oom_state *state, char *text, size_t text_bytes)
{
    const struct analysis a = analyse(state);
    const uint64_t given = ms_plus(state->reclaimable_bytes, state->pending_bytes);
    const uint64_t room_bytes = ms_less(a.room_bytes, state->charged_bytes);
    const uint64_t beyond_bytes = ms_less(state->charged_bytes, a.room_bytes);
    const uint64_t hole_bytes = given < state->charged_bytes ? given : state->charged_bytes;
    /* Where the holes would have been enough, none of them served. */
    const bool with_holes = ms_less(ms_plus(a.terms.piece_bytes, beyond_bytes),
                                    ms_plus(room_bytes, hole_bytes)) == a.short_bytes;
    const uint64_t least_bytes = a.short_bytes > UNIT_OF_SUMS ? a.short_bytes : UNIT_OF_SUMS;
    char piece[96] = "asked for", between[64] = "", holes[128] = "";

    text[0] = '\0';
    if (a.short_bytes == 0) {
        return;
    }
    if (a.terms.piece_bytes > state->requested_bytes) {
        snprintf(piece, sizeof(piece), "that PyTorch asked the driver for, to place %s in it",
                 ADDEND(state->requested_bytes));
    }
    if (with_holes && beyond_bytes > 0) {
        snprintf(between, sizeof(between), "+ %s in use beyond the bound", ADDEND(beyond_bytes));
    } else {
        snprintf(between, sizeof(between), "- %s free",
                 ADDEND(with_holes ? room_bytes : a.terms.free_bytes));
    }
    if (with_holes && hole_bytes > 0) {
        const bool part = hole_bytes < a.terms.hole_bytes;

        snprintf(holes, sizeof(holes), " - %s%s%s in holes", ADDEND(hole_bytes),
                 part ? " that could be had of the " : "", part ? ADDEND(a.terms.hole_bytes) : "");
    }
    snprintf(text, text_bytes, "%s %s %s%s = %s", ADDEND(a.terms.piece_bytes), piece, between,
             holes, ADDEND(a.short_bytes));
}

/* "the cap (41.80 GiB, fraction 0.95)", or the name of another limit. */
static void limit_text(const struct ms_oom_state *state, const struct analysis *a, char *text,
                       size_t text_bytes)
{
    char cap[MS_UNIT_TEXT_BYTES], fraction[MS_UNIT_TEXT_BYTES], others[MS_UNIT_TEXT_BYTES];

    if (a->nearest == MS_VERDICT_DRIVER_LIMIT) {
        snprintf(text, text_bytes, "what the driver allows (%s)",
                 ms_bytes_text(state->limit_bytes, cap, sizeof(cap)));
        return;
    }
    if (a->nearest == MS_VERDICT_OTHER_PROCESS) {
        snprintf(text, text_bytes, "what other processes leave of the device (%s of %s)",
                 ms_bytes_text(a->room_bytes, others, sizeof(others)),
                 ms_bytes_text(state->device_total_bytes, cap, sizeof(cap)));
        return;
    }
    ms_bytes_text(state->cap_bytes, cap, sizeof(cap));
    if (state->shared.others_bytes > 0) {
        snprintf(text, text_bytes, "what others leave of the cap (%s of %s)", cap,
                 ms_bytes_text(state->shared.bytes, others, sizeof(others)));
        return;
    }
    if (state->fraction_known && state->fraction > 0 && state->fraction < 1) {
        snprintf(text, text_bytes, "the cap (%s, fraction %s)", cap,
                 ms_decimal_text((int64_t)ms_of_ratio(state->fraction, 1000000), fraction,
                                 sizeof(fraction)));
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
    if (a->terms.of_host) {
        snprintf(text, text_bytes,
                 "asked for %s of page-locked host memory, and the driver refused", asked);
        return;
    }
    limit_text(state, a, limit, sizeof(limit));
    if (a->terms.piece_bytes > state->requested_bytes) {
        snprintf(into, sizeof(into), " (PyTorch asked the driver for %s)",
                 ms_bytes_text(a->terms.piece_bytes, amount, sizeof(amount)));
    }
    if (a->short_bytes > 0) {
        snprintf(text, text_bytes, "asked for %s%s, %s short of %s", asked, into,
                 ms_bytes_text(a->short_bytes, amount, sizeof(amount)), limit);
    } else {
        snprintf(text, text_bytes, "asked for %s%s, with %s of %s free", asked, into,
                 ms_bytes_text(a->to_be_had_bytes, amount, sizeof(amount)), limit);
    }
}

/* Live bytes and request did not fit by themselves, as `end` says; or they left hardly anything. */
static void say_need(const struct analysis *a, const char *end, char *text, size_t text_bytes)
{
    char need[MS_UNIT_TEXT_BYTES], room[MS_UNIT_TEXT_BYTES], rest[96] = "";
    char amount[MS_UNIT_TEXT_BYTES];
    const bool fits = a->need_bytes <= a->room_bytes;

    ms_bytes_text_beside(a->need_bytes, a->room_bytes, need, sizeof(need));
    ms_bytes_text_beside(a->room_bytes, a->need_bytes, room, sizeof(room));
    if (fits && !ms_verdict_nothing_left(&a->terms)) {
        snprintf(text, text_bytes,
                 "memory in use and the request come to %s of %s; the %s that are left are less "
                 "than the %s that PyTorch asks for at a time",
                 need, room, MS_BYTES(a->room_bytes - a->need_bytes),
                 ms_bytes_text(a->terms.piece_bytes, amount, sizeof(amount)));
        return;
    }
    if (a->terms.hole_bytes > 0) {
        snprintf(rest, sizeof(rest),
                 fits ? "; %s of what was free lay in holes"
                      : "; the %s in holes would not have been enough",
                 ms_bytes_text(a->terms.hole_bytes, amount, sizeof(amount)));
    }
    if (fits) {
        snprintf(
            text, text_bytes,
            "memory in use and the request come to %s of %s, so hardly anything would be left%s",
            need, room, rest);
    } else {
        snprintf(text, text_bytes, "memory in use and the request come to %s%s%s", need, end, rest);
    }
}

static void say_demand(const struct ms_oom_state *state, const struct analysis *a, char *text,
                       size_t text_bytes)
{
    char end[96], device[MS_UNIT_TEXT_BYTES];

    snprintf(end, sizeof(end), " on a device of %s%s",
             ms_bytes_text_beside(state->device_total_bytes, a->need_bytes, device, sizeof(device)),
             a->terms.hole_bytes == 0 ? ", and nothing lay in holes" : "");
    say_need(a, end, text, text_bytes);
}

static void say_torch_refused(const struct ms_oom_state *state, char *text, size_t text_bytes)
{
    char limit[MS_UNIT_TEXT_BYTES];

    if (state->limited_by == MS_LIMITED_BY_TORCH_CONF) {
        snprintf(text, text_bytes,
                 "enough memory was free, but PyTorch itself refused: per_process_memory_fraction "
                 "in PYTORCH_ALLOC_CONF allows it %s, including its cache",
                 ms_bytes_text(state->limit_bytes, limit, sizeof(limit)));
        return;
    }
    snprintf(text, text_bytes,
             "enough memory was free, but PyTorch itself refused: either "
             "set_per_process_memory_fraction allows no more (PyTorch counts its cache, too), or "
             "the program's own allocator in one of PyTorch's memory pools had no more");
}

/* "python3 (pid 4711): 1.90 GiB"; in a damaged trace the name may be anything. */
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

bool ms_verdict_of_shared_cap(const struct ms_oom_state *state)
{
    const struct ms_verdict_terms terms = ms_verdict_terms(state);

    return state->shared.others_bytes > 0 && ms_verdict_need_bytes(&terms) <= state->shared.bytes;
}

/* Which other processes have the rest of a shared cap. */
static void say_shared_cap(const struct ms_oom_state *state, const struct analysis *a, char *text,
                           size_t text_bytes)
{
    const struct ms_shared_cap *shared = &state->shared;
    char end[MS_SENTENCE_BYTES / 4], cap[MS_UNIT_TEXT_BYTES], held[MS_UNIT_TEXT_BYTES];
    char who[MS_UNIT_TEXT_BYTES * 3], rank[32] = "";

    (void)say_other(&shared->largest, who, sizeof(who));
    if (shared->largest_rank >= 0) {
        snprintf(rank, sizeof(rank), "rank %" PRId64 ", ", shared->largest_rank);
    }
    snprintf(end, sizeof(end),
             ", which the cap (%s) allows, but other processes of its group hold %s of it "
             "(%" PRIu64 ", the largest %s%s)",
             ms_bytes_text(shared->bytes, cap, sizeof(cap)),
             ms_bytes_text(shared->others_bytes, held, sizeof(held)), shared->others, rank, who);
    say_need(a, end, text, text_bytes);
}

static void say_cap(const struct ms_oom_state *state, const struct analysis *a, char *text,
                    size_t text_bytes)
{
    char end[128], device[MS_UNIT_TEXT_BYTES];

    if (a->terms.torch_refused) {
        say_torch_refused(state, text, text_bytes);
        return;
    }
    if (ms_verdict_of_shared_cap(state)) {
        say_shared_cap(state, a, text, text_bytes);
        return;
    }
    snprintf(end, sizeof(end), ", which the device (%s) has, but the cap does not allow",
             ms_bytes_text(state->device_total_bytes, device, sizeof(device)));
    say_need(a, end, text, text_bytes);
}

/* " (because ...)", or nothing. */
static const char *pinned_text(const struct ms_oom_state *state)
{
    static const char *const texts[MS_PINNED_BY_COUNT] = {
        [MS_PINNED_BY_NOTHING] = "",
        [MS_PINNED_BY_TORCH_OFF] =
            " (they are in PyTorch's segments, which memshim leaves alone with MEMSHIM_TORCH=off)",
        [MS_PINNED_BY_POOL_OFF] = " (memshim repairs nothing with MEMSHIM_POOL=off)",
        [MS_PINNED_BY_CAPTURE] =
            " (CUDA graphs replay into memory that was allocated during a capture)",
        [MS_PINNED_BY_NO_HOST] = " (no host memory could stand in for them)",
        [MS_PINNED_BY_TENSORS] = " (beside live tensors, in pieces too small to be moved)",
        [MS_PINNED_BY_WORK] = "",
        [MS_PINNED_BY_OWNER] = " (an allocator keeps them for itself, as CuPy's pool does)",
    };

    return state->pinned_by < MS_PINNED_BY_COUNT ? texts[state->pinned_by] : "";
}

static void say_fragmentation(const struct ms_oom_state *state, const struct analysis *a,
                              char *text, size_t text_bytes)
{
    const uint64_t hole_bytes = a->terms.hole_bytes, usable_bytes = state->reclaimable_bytes;
    char holes[MS_UNIT_TEXT_BYTES], largest[MS_UNIT_TEXT_BYTES], range[64] = "";
    char part[MS_UNIT_TEXT_BYTES];

    if (state->pinned_by == MS_PINNED_BY_WORK) {
        snprintf(text, text_bytes,
                 "%s were freed, but queued work may still use them, and did not end while memshim "
                 "waited for it (MEMSHIM_WAIT_MS)",
                 ms_bytes_text(state->pending_bytes, holes, sizeof(holes)));
        return;
    }
    if (state->largest_free_bytes > 0) { /* else it is unknown, or there is none */
        snprintf(range, sizeof(range), "; the largest free range was %s",
                 ms_bytes_text(state->largest_free_bytes, largest, sizeof(largest)));
    }
    /* What was usable was not enough: the rest of the holes is to blame. */
    ms_bytes_text(hole_bytes, holes, sizeof(holes));
    if (usable_bytes > 0 && usable_bytes < hole_bytes) {
        ms_bytes_text(hole_bytes - usable_bytes, part, sizeof(part));
        snprintf(text, text_bytes,
                 "%s of the %s that are free in holes could not be used elsewhere%s%s", part, holes,
                 pinned_text(state), range);
        return;
    }
    snprintf(text, text_bytes, "%s are free in holes that could not be used elsewhere%s%s", holes,
             pinned_text(state), range);
}

/* "python3, pid 4711: 1.90 GiB; pid 4712: 300.0 MiB", as far as there is room; empty: none is
 * known. */
static void list_others(const struct ms_others *others, char *text, size_t text_bytes)
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

    list_others(&state->others, who, sizeof(who));
    snprintf(text, text_bytes,
             "other processes hold %s of the device%s%s%s; without them, memory in use and the "
             "request (%s) would have fitted",
             ms_bytes_text(state->other_process_bytes, others, sizeof(others)), who[0] ? " (" : "",
             who, who[0] ? ")" : "", ms_bytes_text(a->need_bytes, sum, sizeof(sum)));
}

static void say_limit(const struct ms_oom_state *state, const struct analysis *a, char *text,
                      size_t text_bytes)
{
    char used[MS_UNIT_TEXT_BYTES], limit[MS_UNIT_TEXT_BYTES], enough[MS_UNIT_TEXT_BYTES];
    const uint64_t used_bytes = ms_less(state->spill_limit_bytes, state->spill_left_bytes);

    snprintf(text, text_bytes,
             "live memory takes %s of the %s of host memory that it may move to "
             "(MEMSHIM_SPILL_LIMIT); with the request it needs at least %s",
             ms_bytes_text(used_bytes, used, sizeof(used)),
             ms_bytes_text(state->spill_limit_bytes, limit, sizeof(limit)),
             ms_bytes_text(ms_plus(used_bytes, a->short_bytes), enough, sizeof(enough)));
}

static void say_driver_limit(const struct ms_oom_state *state, const struct analysis *a, char *text,
                             size_t text_bytes)
{
    char limit[MS_UNIT_TEXT_BYTES], used[MS_UNIT_TEXT_BYTES], sum[MS_UNIT_TEXT_BYTES];

    ms_bytes_text(state->limit_bytes, limit, sizeof(limit));
    ms_bytes_text(a->need_bytes, sum, sizeof(sum));
    if (state->limited_by == MS_LIMITED_BY_CGROUP) {
        snprintf(text, text_bytes,
                 "the control group of this process may have %s of the device (dmem.max) and has "
                 "%s; memory in use and the request come to %s",
                 limit, ms_bytes_text(state->limit_used_bytes, used, sizeof(used)), sum);
        return;
    }
    snprintf(text, text_bytes,
             "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT allows this process %s of the device; memory in use "
             "and the request come to %s",
             limit, sum);
}

static void say_not_device(const struct ms_oom_state *state, const struct analysis *a, char *text,
                           size_t text_bytes)
{
    char amount[MS_UNIT_TEXT_BYTES];

    if (a->terms.of_host) {
        snprintf(text, text_bytes,
                 "the host refused, and the device was not asked: the host has no more memory that "
                 "can be page-locked");
        return;
    }
    if (a->terms.driver_error != 0) {
        snprintf(text, text_bytes,
                 "the device had room, but PyTorch gave up after the driver returned error %" PRIu64
                 " (CUresult), which is not about memory",
                 a->terms.driver_error);
        return;
    }
    if (ms_verdict_lacking_bytes(&a->terms) > 0) { /* then S would have been enough */
        snprintf(text, text_bytes,
                 "%s of live memory could have moved to the host, but the host refused it: look at "
                 "the host's free memory, and at the container's limits",
                 ms_bytes_text(a->terms.spillable_bytes, amount, sizeof(amount)));
        return;
    }
    snprintf(
        text, text_bytes,
        "the device had room (%s%s are free%s), and the cap allows the request: something else was "
        "missing, such as host memory, address space (ulimit -v), room in a memory pool of fixed "
        "size or an MPS limit; or the memory became free just afterwards",
        state->driver_free_known ? "the driver says that " : "",
        ms_bytes_text(state->driver_free_known ? state->driver_free_bytes : a->terms.free_bytes,
                      amount, sizeof(amount)),
        state->driver_free_known ? "" : " as far as is known");
}

const char *ms_unspilled_text(const struct ms_oom_state *state)
{
    static const char *const texts[MS_UNSPILLED_COUNT] = {
        [MS_UNSPILLED_NO_ACCESS] = "this device cannot move live memory to the host",
        [MS_UNSPILLED_CAPTURE] = "while a stream captures, nothing moves to the host",
        [MS_UNSPILLED_BUSY] = "the device did not become idle, so nothing could move to the host",
        [MS_UNSPILLED_NO_HOST] = "the host had no memory left for more to move there",
        [MS_UNSPILLED_PINNED] = "the rest of live memory may not move to the host",
    };

    return state->unspilled_by < MS_UNSPILLED_COUNT ? texts[state->unspilled_by] : NULL;
}

/* Whether to say why live memory did not make room. If the reason was the limit, the verdict says
 * so already. */
static bool says_unspilled(const struct ms_oom_state *state, const struct analysis *a,
                           enum ms_verdict verdict)
{
    return ms_unspilled_text(state) && !a->terms.torch_refused &&
           (verdict == MS_VERDICT_DEMAND || verdict == MS_VERDICT_CAP ||
            verdict == MS_VERDICT_OTHER_PROCESS || verdict == MS_VERDICT_DRIVER_LIMIT);
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
    const enum ms_verdict verdict = ms_verdict_rule(&a.terms);
    char reason[MS_SENTENCE_BYTES / 2] = "";

    if (short_bytes) {
        *short_bytes = a.short_bytes;
    }
    if (what) {
        say_what(state, &a, what, what_bytes);
    }
    if (why) {
        const bool unspilled = says_unspilled(state, &a, verdict);

        say[verdict](state, &a, reason, sizeof(reason));
        snprintf(why, why_bytes, "%s: %s%s%s", ms_verdict_name(verdict), reason,
                 unspilled ? "; " : "", unspilled ? ms_unspilled_text(state) : "");
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
