/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the line at which a loop's steps begin. */
#include "report/model/reading/loop.h"

#include <string.h>

#include "allocator/base/buffer.h"
#include "allocator/base/containers/pages.h"

#define MOST_LINES  16384u
#define MOST_TIMES  512u /* of one line; beyond that, one in `every` */
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
    uint32_t site; /* its newest site */
    bool calls;    /* compiled functions */
    uint64_t count;
    uint64_t first, compared, last;   /* number of turns before its first, third and newest */
    uint64_t asked_first, asked_last; /* number of allocations before its first and newest turn */
    uint64_t beginning;               /* the hash of all rows up to its newest turn */
    struct turn_row newest, other;    /* two rows, because they may alternate */
    uint64_t alike, beside, longest;  /* turns as they were seen before; behind those; in a row */
    uint64_t every;
    struct ms_buffer times; /* uint64_t */
};

struct ms_loop {
    const ms_definitions_t *definitions;
    const ms_landmarks_t *landmarks;
    bool calls_models, called; /* in this run; and so far */
    uint64_t turns, hash;
    uint64_t calls;                    /* of compiled functions */
    uint64_t asked;                    /* allocations with a line */
    uint32_t newest;                   /* the line of the newest turn */
    struct anchor anchors[MOST_LINES]; /* by node */
    uint64_t hashes[MOST_RECENT];      /* by number of turns: `hash` as it was after so many */
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

void ms_loop_delete(ms_loop_t *loop)
{
    if (loop) {
        for (uint32_t line = 0; line < MOST_LINES; line++) {
            ms_buffer_free(&loop->anchors[line].times);
        }
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

static void note_time(struct anchor *anchor, uint64_t time_ns)
{
    uint64_t *all = (uint64_t *)anchor->times.at;

    anchor->every = anchor->every ? anchor->every : 1;
    if (anchor->times.bytes == MOST_TIMES * sizeof(*all)) {
        for (size_t i = 0; i < MOST_TIMES / 2; i++) {
            all[i] = all[2 * i];
        }
        anchor->times.bytes = MOST_TIMES / 2 * sizeof(*all);
        anchor->every *= 2;
    }
    if (anchor->count % anchor->every == 0) {
        ms_buffer_append(&anchor->times, (const char *)&time_ns, sizeof(time_ns));
    }
}

/* The latest turns, from the hashes before and behind them. */
static struct turn_row row_of(uint64_t before, uint64_t hash, uint64_t length)
{
    return (struct turn_row){hash - before * power(length), length};
}

/* Whether the row that ends now begins like the other one, and goes on. */
static bool begins_like(const struct ms_loop *loop, const struct anchor *anchor,
                        struct turn_row other)
{
    const uint64_t until = anchor->last + other.length;

    return until < loop->turns && loop->turns - until < MOST_RECENT &&
           is_same(other,
                   row_of(anchor->beginning, loop->hashes[until % MOST_RECENT], other.length));
}

/* How many of the row's turns, from its beginning, came in the same order before. What follows
 * them, such as an evaluation now and then, is no part of the step. */
static uint64_t seen_before(const struct ms_loop *loop, const struct anchor *anchor,
                            struct turn_row row)
{
    const struct turn_row before[] = {anchor->newest, anchor->other};
    uint64_t most = 0;

    for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
        const uint64_t length = before[i].length;

        if (length > most && (is_same(row, before[i]) || begins_like(loop, anchor, before[i]))) {
            most = length;
        }
    }
    return most;
}

static void end_row(const struct ms_loop *loop, struct anchor *anchor)
{
    const struct turn_row row = row_of(anchor->beginning, loop->hash, loop->turns - anchor->last);

    if (anchor->count >= WARM_UP) {
        const uint64_t seen = seen_before(loop, anchor, row);

        anchor->alike += seen;
        anchor->beside += seen > 0 ? row.length - seen : 0;
    }
    if (!is_same(row, anchor->newest)) {
        anchor->other = anchor->newest;
        anchor->newest = row;
    }
    anchor->longest = row.length > anchor->longest ? row.length : anchor->longest;
}

static void take_turn(const struct ms_loop *loop, struct anchor *anchor, uint64_t time_ns)
{
    if (anchor->count > 0) {
        end_row(loop, anchor);
    } else {
        anchor->first = loop->turns;
        anchor->asked_first = loop->asked;
    }
    anchor->asked_last = loop->asked;
    note_time(anchor, time_ns);
    anchor->count++;
    anchor->compared = anchor->count == WARM_UP ? loop->turns : anchor->compared;
    anchor->last = loop->turns;
    anchor->beginning = loop->hash;
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

void ms_loop_allocation(ms_loop_t *loop, uint32_t site, uint64_t time_ns)
{
    const uint32_t line = line_of(loop, site);

    if (line == 0) {
        return;
    }
    loop->asked++;
    if (line == loop->newest) {
        return;
    }
    loop->newest = line;
    if (line < MOST_LINES) {
        loop->anchors[line].site = site;
        take_turn(loop, &loop->anchors[line], time_ns);
    }
    loop->hash = loop->hash * BASE + line;
    loop->turns++;
    loop->hashes[loop->turns % MOST_RECENT] = loop->hash;
}

void ms_loop_call(ms_loop_t *loop, uint64_t line)
{
    loop->calls++;
    loop->newest = loop->newest == line ? 0 : loop->newest;
    if (line < MOST_LINES) {
        loop->anchors[line].calls = true;
    }
}

/* ---- afterwards ---- */

/* Whether most calls of compiled functions are this line's, and no other line has as many turns.
 * Such a line counts as the loop's, whatever was asked for before: compiling may ask for more than
 * all steps. */
static bool is_most_called(const struct ms_loop *loop, const struct anchor *anchor)
{
    uint64_t most = 0;

    if (!anchor->calls) {
        return false;
    }
    for (uint32_t line = 0; line < MOST_LINES; line++) {
        const struct anchor *other = &loop->anchors[line];

        most = other != anchor && other->count > most ? other->count : most;
    }
    return anchor->count >= loop->calls / 2 && anchor->count > most;
}

/* Whether the line recurs over most of the run's turns and requests. A step that is one call of a
 * compiled function is one turn, and the set-up before it may have had many: there, requests alone
 * count. */
static bool is_most_of_run(const struct ms_loop *loop, const struct anchor *anchor)
{
    return (anchor->calls || anchor->last - anchor->first >= loop->turns / 2) &&
           anchor->asked_last - anchor->asked_first >= loop->asked / 2;
}

/* Whether the line is a loop's, and the loop goes on to the end. */
static bool is_steady(const struct ms_loop *loop, const struct anchor *anchor)
{
    return anchor->count > WARM_UP && loop->turns - anchor->last <= 2 * anchor->longest &&
           (is_most_of_run(loop, anchor) || is_most_called(loop, anchor));
}

/* The part of the steps since then that came in the same order before. */
static double alike(const struct anchor *anchor)
{
    const uint64_t since = anchor->last - anchor->compared;

    return since > 0 && (double)anchor->beside <= MOST_BESIDE * (double)since
               ? (double)anchor->alike / (double)(since - anchor->beside)
               : 0;
}

static bool is_users(const struct ms_loop *loop, uint32_t code)
{
    const struct ms_code_read *is = ms_definitions_code(loop->definitions, code);

    return is && !strstr(is->file, "/site-packages/") && !strstr(is->file, "/dist-packages/");
}

/* The number of frames that are no package's. */
static uint32_t depth_of(const struct ms_loop *loop, uint32_t line)
{
    const struct ms_python_definition *node;
    uint32_t depth = 0;

    for (; (node = ms_definitions_python(loop->definitions, line)); line = node->caller) {
        depth += is_users(loop, node->code);
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
    return a->anchor->count != b->anchor->count ? a->anchor->count > b->anchor->count
                                                : a->anchor->first < b->anchor->first;
}

static struct anchor_choice choose(const struct ms_loop *loop)
{
    struct anchor_choice best = {0};

    for (uint32_t line = 1; line < MOST_LINES; line++) {
        const struct anchor *anchor = &loop->anchors[line];

        if (is_steady(loop, anchor) && alike(anchor) >= LEAST_ALIKE) {
            const struct anchor_choice each = {anchor, depth_of(loop, line)};

            best = is_better(&each, &best) ? each : best;
        }
    }
    return best;
}

bool ms_loop_judge(const ms_loop_t *loop, uint64_t fewest, struct ms_recurrence *found)
{
    const struct anchor *anchor = choose(loop).anchor;

    if (!anchor || anchor->count < fewest) {
        return false;
    }
    found->known = true;
    found->count = anchor->count;
    found->site = anchor->site;
    found->confidence = alike(anchor);
    found->every = anchor->every;
    ms_buffer_append(&found->begins, anchor->times.at, anchor->times.bytes);
    return true;
}
