/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the line at which a loop's steps begin. */
#include "report/model/reading/loop.h"

#include <string.h>

#include "allocator/base/buffer.h"
#include "allocator/base/containers/pages.h"
#include "report/fold/live_set.h"
#include "report/symbols/stacks_roles.h"

#define MOST_LINES  16384u
#define MOST_TIMES  512u /* of one line */
#define LEAST_ALIKE 0.9
#define MOST_BESIDE 0.25   /* the part of the turns that may lie behind steps */
#define WARM_UP     3u     /* rows of a line are compared from its third turn on */
#define MOST_RECENT 65536u /* turns: a row that is longer is compared as a whole alone */

/* Hashes of rows of lines: polynomials over 2^64, so that the hash of a part follows from those of
 * the beginnings before and after it. */
#define BASE UINT64_C(0x9e3779b97f4a7c15)

/* The lines between two turns of one line. */
struct turn_row {
    uint64_t hash, length;
};

/* A line, with the way it was reached: a node of Python. Its consecutive requests are one turn, up
 * to its next call of a compiled function. */
struct anchor {
    uint32_t line;
    uint32_t site; /* its newest site */
    bool calls;    /* compiled functions */
    struct ms_begins turns;
    struct ms_buffer events; /* uint64_t: the numbers of the events that its turns began with */
    uint64_t first, compared, last;   /* number of turns before its first, third and newest */
    uint64_t asked_first, asked_last; /* number of allocations before its first and newest turn */
    uint64_t beginning;               /* the hash of all rows up to its newest turn */
    struct turn_row newest, other;    /* two rows, because they may alternate */
    uint64_t alike, beside, longest;  /* turns as they were seen before; behind those; in a row */
    uint64_t requests, bytes;
    uint64_t live_bytes, held_bytes; /* now; as its newest turn began */
    uint64_t held_sum_bytes;         /* of all turns */
    uint64_t ended;                  /* turns that began with less than half of what the one before
                                        began with */
};

/* The order of lines: of all of them, or of the program's own. */
struct order {
    uint64_t turns, hash;
    uint64_t calls;                    /* of compiled functions */
    uint64_t asked;                    /* allocations with a line */
    uint32_t newest;                   /* the line of the newest turn */
    struct anchor anchors[MOST_LINES]; /* by node */
    uint64_t hashes[MOST_RECENT];      /* by number of turns: `hash` as it was after so many */
};

struct ms_loop {
    const ms_definitions_t *definitions;
    const ms_landmarks_t *landmarks;
    bool calls_models, called; /* in this run; and so far */
    bool passes_back;          /* steps are found in another way */
    struct order all, own;
    struct ms_live_set live;     /* site: its line; caller: the program's own */
    uint32_t own_of[MOST_LINES]; /* by line: the nearest caller that is no library's, plus 1; 0:
                                    not looked for yet */
};

ms_loop_t *ms_loop_new(const ms_definitions_t *definitions, const ms_landmarks_t *landmarks)
{
    struct ms_loop *loop = ms_pages_map(sizeof(*loop));

    if (!loop) {
        return NULL;
    }
    loop->definitions = definitions;
    loop->landmarks = landmarks;
    loop->calls_models = ms_landmarks_first_call(landmarks) != UINT32_MAX;
    return loop;
}

static void free_anchor(struct anchor *anchor)
{
    ms_buffer_free(&anchor->turns.at);
    ms_buffer_free(&anchor->events);
}

void ms_loop_delete(ms_loop_t *loop)
{
    if (loop) {
        for (uint32_t line = 0; line < MOST_LINES; line++) {
            free_anchor(&loop->all.anchors[line]);
            free_anchor(&loop->own.anchors[line]);
        }
        ms_live_free(&loop->live);
        ms_pages_unmap(loop, sizeof(*loop));
    }
}

static uint64_t power(uint64_t exponent)
{
    uint64_t result = 1;

    for (uint64_t square = BASE; exponent > 0; exponent >>= 1, square *= square) {
        result *= exponent & 1 ? square : 1;
    }
    return result;
}

static bool is_same(struct turn_row a, struct turn_row b)
{
    return a.hash == b.hash && a.length == b.length;
}

/* The latest turns, from the hashes before and behind them. */
static struct turn_row row_of(uint64_t before, uint64_t hash, uint64_t length)
{
    return (struct turn_row){hash - before * power(length), length};
}

/* Whether the row that ends now begins like the other one, and goes on. */
static bool begins_like(const struct order *order, const struct anchor *anchor,
                        struct turn_row other)
{
    const uint64_t until = anchor->last + other.length;

    return until < order->turns && order->turns - until < MOST_RECENT &&
           is_same(other,
                   row_of(anchor->beginning, order->hashes[until % MOST_RECENT], other.length));
}

/* How many of the row's turns, from its beginning, came in the same order before. What follows
 * them, such as an evaluation now and then, is no part of the step. */
static uint64_t seen_before(const struct order *order, const struct anchor *anchor,
                            struct turn_row row)
{
    const struct turn_row before[] = {anchor->newest, anchor->other};
    uint64_t most = 0;

    for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
        const uint64_t length = before[i].length;

        if (length > most && (is_same(row, before[i]) || begins_like(order, anchor, before[i]))) {
            most = length;
        }
    }
    return most;
}

static void end_row(const struct order *order, struct anchor *anchor)
{
    const struct turn_row row = row_of(anchor->beginning, order->hash, order->turns - anchor->last);

    if (anchor->turns.count >= WARM_UP) {
        const uint64_t seen = seen_before(order, anchor, row);

        anchor->alike += seen;
        anchor->beside += seen > 0 ? row.length - seen : 0;
    }
    if (!is_same(row, anchor->newest)) {
        anchor->other = anchor->newest;
        anchor->newest = row;
    }
    anchor->longest = row.length > anchor->longest ? row.length : anchor->longest;
}

static void take_turn(const struct order *order, struct anchor *anchor, uint64_t time_ns,
                      uint64_t number)
{
    if (anchor->turns.count > 0) {
        end_row(order, anchor);
    } else {
        anchor->first = order->turns;
        anchor->asked_first = order->asked;
    }
    anchor->asked_last = order->asked;
    anchor->ended += anchor->live_bytes < anchor->held_bytes / 2;
    anchor->held_bytes = anchor->live_bytes;
    anchor->held_sum_bytes += anchor->live_bytes;
    ms_begins_note(&anchor->turns, &anchor->events, MOST_TIMES, time_ns, number);
    anchor->compared = anchor->turns.count == WARM_UP ? order->turns : anchor->compared;
    anchor->last = order->turns;
    anchor->beginning = order->hash;
}

/* The line of a request; 0: it belongs to no loop of steps. */
static uint32_t line_of(struct ms_loop *loop, uint32_t site)
{
    const struct ms_site_definition *is = ms_definitions_site(loop->definitions, site);
    const struct ms_doings *doings = ms_landmarks_of(loop->landmarks, site);
    const bool forward = doings->doing == MS_DOING_FORWARD;

    loop->called = loop->called || forward;
    /* A model's parameters are made one by one, which is no loop of steps. */
    if (!is || (loop->calls_models && !loop->called) ||
        (doings->passed & MS_PASSED_CONSTRUCTION) != 0) {
        return 0;
    }
    return forward ? doings->caller : is->python;
}

static bool is_own(const struct ms_loop *loop, uint32_t code)
{
    const struct ms_code_read *is = ms_definitions_code(loop->definitions, code);

    return is && !ms_is_library_script(is->file, is->function);
}

/* The line of the program's own that led to a line; 0: none did. */
static uint32_t own_line(struct ms_loop *loop, uint32_t line)
{
    const struct ms_python_definition *node;
    uint32_t own = line;

    if (line < MOST_LINES && loop->own_of[line] > 0) {
        return loop->own_of[line] - 1;
    }
    while ((node = ms_definitions_python(loop->definitions, own)) && !is_own(loop, node->code)) {
        own = node->caller;
    }
    if (line < MOST_LINES) {
        loop->own_of[line] = own + 1;
    }
    return own;
}

static struct anchor *anchor_of(struct order *order, uint32_t line)
{
    return line > 0 && line < MOST_LINES ? &order->anchors[line] : NULL;
}

static void take_request(struct order *order, uint32_t line, const struct ms_event *event,
                         uint64_t time_ns, uint64_t number)
{
    struct anchor *anchor = anchor_of(order, line);

    order->asked++;
    if (line != order->newest) {
        order->newest = line;
        if (anchor) {
            anchor->line = line;
            anchor->site = event->site;
            take_turn(order, anchor, time_ns, number);
        }
        order->hash = order->hash * BASE + line;
        order->turns++;
        order->hashes[order->turns % MOST_RECENT] = order->hash;
    }
    if (anchor) {
        anchor->requests++;
        anchor->bytes += event->bytes;
        anchor->live_bytes += event->bytes;
    }
}

void ms_loop_allocation(ms_loop_t *loop, const struct ms_event *event, uint64_t time_ns,
                        uint64_t number)
{
    loop->passes_back = loop->passes_back ||
                        ms_landmarks_of(loop->landmarks, event->site)->doing == MS_DOING_BACKWARD;

    const uint32_t line = loop->passes_back ? 0 : line_of(loop, event->site);
    struct ms_live *live = NULL;

    if (line == 0) {
        return;
    }
    if (event->kind == MS_EVENT_BLOCK_ALLOC || event->kind == MS_EVENT_TENSOR_ALLOC) {
        live = ms_live_add(&loop->live, event->id);
    }

    const uint32_t own = own_line(loop, line);

    if (live) {
        live->site = line;
        live->caller = own;
        live->bytes = event->bytes;
    }
    take_request(&loop->all, line, event, time_ns, number);
    if (own > 0) {
        take_request(&loop->own, own, event, time_ns, number);
    }
}

static void let_go(struct anchor *anchor, uint64_t bytes)
{
    if (anchor) {
        anchor->live_bytes -= bytes;
    }
}

void ms_loop_free(ms_loop_t *loop, uint64_t id)
{
    struct ms_live live;

    if (ms_live_take(&loop->live, id, &live)) {
        let_go(anchor_of(&loop->all, live.site), live.bytes);
        let_go(anchor_of(&loop->own, live.caller), live.bytes);
    }
}

static void take_call(struct order *order, uint32_t line)
{
    struct anchor *anchor = anchor_of(order, line);

    order->calls++;
    order->newest = order->newest == line ? 0 : order->newest;
    if (anchor) {
        anchor->calls = true;
    }
}

void ms_loop_call(ms_loop_t *loop, uint64_t line)
{
    if (line < MOST_LINES) {
        take_call(&loop->all, (uint32_t)line);
        take_call(&loop->own, own_line(loop, (uint32_t)line));
    }
}

/* ---- afterwards ---- */

/* Whether most calls of compiled functions are this line's, and no other line has more turns, but
 * for the first ones, which may have passed through another line. Then it counts for nothing how
 * much was asked for before: compiling may ask for more than all steps. */
static bool is_most_called(const struct order *order, const struct anchor *anchor)
{
    uint64_t most = 0;

    if (!anchor->calls) {
        return false;
    }
    for (uint32_t line = 0; line < MOST_LINES; line++) {
        const struct anchor *other = &order->anchors[line];

        most = other != anchor && other->turns.count > most ? other->turns.count : most;
    }
    return anchor->turns.count >= order->calls / 2 && anchor->turns.count + WARM_UP > most;
}

/* Whether the line recurs over most of the run's turns and requests. A step that is one call of a
 * compiled function is one turn, and the set-up before it may have had many: there, requests alone
 * count. */
static bool is_most_of_run(const struct order *order, const struct anchor *anchor)
{
    return (anchor->calls || anchor->last - anchor->first >= order->turns / 2) &&
           anchor->asked_last - anchor->asked_first >= order->asked / 2;
}

/* Whether the line is a loop's, and the loop goes on to the end. */
static bool is_steady(const struct order *order, const struct anchor *anchor)
{
    return anchor->turns.count > WARM_UP && order->turns - anchor->last <= 2 * anchor->longest &&
           (is_most_of_run(order, anchor) || is_most_called(order, anchor));
}

/* The part of the steps since then that came in the same order before. */
static double alike(const struct anchor *anchor)
{
    const uint64_t since = anchor->last - anchor->compared;

    return since > 0 && (double)anchor->beside <= MOST_BESIDE * (double)since
               ? (double)anchor->alike / (double)(since - anchor->beside)
               : 0;
}

/* The number of frames that are no package's. */
static uint32_t depth_of(const struct ms_loop *loop, uint32_t line)
{
    const struct ms_python_definition *node;
    uint32_t depth = 0;

    for (; (node = ms_definitions_python(loop->definitions, line)); line = node->caller) {
        depth += is_own(loop, node->code);
    }
    return depth;
}

struct anchor_choice {
    const struct anchor *anchor; /* null: none */
    uint32_t depth;
};

/* A loop inside a step lies deeper in calls, and a loop around steps comes round less often. Of
 * lines that are equal in both, the one that comes first in a step. */
static bool is_better(const struct anchor_choice *a, const struct anchor_choice *b)
{
    if (!b->anchor || a->depth != b->depth) {
        return !b->anchor || a->depth < b->depth;
    }
    return a->anchor->turns.count != b->anchor->turns.count
               ? a->anchor->turns.count > b->anchor->turns.count
               : a->anchor->first < b->anchor->first;
}

static struct anchor_choice choose(const struct ms_loop *loop, const struct order *order)
{
    struct anchor_choice best = {0};

    for (uint32_t line = 1; line < MOST_LINES; line++) {
        const struct anchor *anchor = &order->anchors[line];

        if (is_steady(order, anchor) && alike(anchor) >= LEAST_ALIKE) {
            const struct anchor_choice each = {anchor, depth_of(loop, line)};

            best = is_better(&each, &best) ? each : best;
        }
    }
    return best;
}

/* ---- a loop in a loop ---- */

static bool is_nearly(uint64_t a, uint64_t b)
{
    return 4 * a >= 3 * b && 3 * a <= 4 * b;
}

/* Whether rounds of the inner loop are parts of the outer one's. Then some of its lines hold at
 * each turn what the one before made, but not as an outer round begins. Lines that hold as much in
 * every round of both have the state, or variables that were not bound anew: if those were most, it
 * is the state of steps. */
static bool is_part_of(const struct ms_loop *loop, const struct anchor *inner,
                       const struct anchor *outer)
{
    uint64_t chains = 0, state = 0;

    for (uint32_t line = 1; line < MOST_LINES; line++) {
        const struct anchor *is = &loop->all.anchors[line];

        if (10 * is->turns.count < 9 * inner->turns.count) {
            continue;
        }
        if (is_nearly(is->ended, outer->turns.count)) {
            chains += is->bytes;
        } else if (is_nearly(is->held_sum_bytes, is->bytes)) {
            state += is->bytes;
        }
    }
    return chains > 0 && 4 * chains >= state;
}

static const struct anchor *around(const struct ms_loop *loop, const struct anchor *inner,
                                   uint64_t fewest)
{
    const struct order *const orders[] = {&loop->all, &loop->own};
    const uint32_t depth = depth_of(loop, inner->line);
    struct anchor_choice best = {0};

    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]) && !best.anchor; i++) {
        for (uint32_t line = 1; line < MOST_LINES; line++) {
            const struct anchor *outer = &orders[i]->anchors[line];

            if (outer->turns.count >= fewest && 2 * outer->turns.count <= inner->turns.count &&
                is_steady(orders[i], outer) && alike(outer) >= LEAST_ALIKE &&
                depth_of(loop, line) <= depth && is_part_of(loop, inner, outer)) {
                const struct anchor_choice each = {outer, depth_of(loop, line)};

                best = is_better(&each, &best) ? each : best;
            }
        }
    }
    return best.anchor;
}

/* Whether nine tenths of the requests are of lines that come as often. */
static bool is_whole(const struct order *order, const struct anchor *anchor)
{
    uint64_t requests = 0;

    for (uint32_t line = 1; line < MOST_LINES; line++) {
        const struct anchor *is = &order->anchors[line];

        requests += 10 * is->turns.count >= 9 * anchor->turns.count ? is->requests : 0;
    }
    return 10 * requests >= 9 * (order->asked - anchor->asked_first);
}

static uint64_t begins_at(const struct anchor *anchor)
{
    return anchor->turns.at.bytes > 0 ? *(const uint64_t *)anchor->turns.at.at : UINT64_MAX;
}

/* The first steps may pass through other lines of a package, which compiles then: the program's own
 * line was there before. */
static const struct anchor *first_too(const struct ms_loop *loop, const struct anchor *found)
{
    const uint32_t own = found->line < MOST_LINES ? loop->own_of[found->line] : 0;
    const struct anchor *is = own > 1 && own <= MOST_LINES ? &loop->own.anchors[own - 1] : found;

    return is->turns.count > found->turns.count && is->turns.count < found->turns.count + WARM_UP &&
                   begins_at(is) < begins_at(found) && is_steady(&loop->own, is) &&
                   alike(is) >= LEAST_ALIKE
               ? is
               : found;
}

/* A step is a round of the outermost loop whose rounds are no parts. If no line of a package recurs
 * in order, because it is called in a loop and has a loop of its own with another number of rounds
 * each time (a prompt's tokens), the program's own lines may. */
static const struct anchor *find(const struct ms_loop *loop, uint64_t fewest)
{
    const struct anchor *found = choose(loop, &loop->all).anchor;

    for (const struct anchor *outer = found; outer; outer = around(loop, found, fewest)) {
        found = outer;
    }
    if (!found) {
        found = choose(loop, &loop->own).anchor;
        found = found && is_whole(&loop->own, found) ? found : NULL;
    }
    return found && found->turns.count >= fewest ? first_too(loop, found) : NULL;
}

bool ms_loop_judge(const ms_loop_t *loop, uint64_t fewest, struct ms_recurrence *found)
{
    const struct anchor *anchor = find(loop, fewest);

    if (!anchor) {
        return false;
    }
    found->known = true;
    found->count = anchor->turns.count;
    found->site = anchor->site;
    found->confidence = alike(anchor);
    found->every = anchor->turns.every;
    ms_buffer_append(&found->begins, anchor->turns.at.at, anchor->turns.at.bytes);
    ms_buffer_append(&found->begin_events, anchor->events.at, anchor->events.bytes);
    return true;
}
