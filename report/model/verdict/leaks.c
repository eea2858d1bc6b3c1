/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the frame at which growing stacks join. */
#include "report/model/verdict/leaks.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "report/model/model.h"
#include "report/model/paths.h"
#include "report/model/site_rows.h"
#include "report/symbols/stacks_roles.h"

#define MOST_JOINED  512u /* the most sites to join: those that grew most */
#define MOST_OTHERS  8192u
#define JOINED_PARTS 4u  /* 1/n of the growth may lie elsewhere than under the joined frame */
#define GRAPH_PARTS  16u /* 1/n of what grows says nothing about a graph */

/* Sites of one Python stack that do not grow. They differ in native frames: an operation's result
 * and its workspace. */
struct other {
    struct ms_path path;
    uint32_t python;
    uint64_t peak_bytes; /* of the largest */
    bool recurs; /* it allocates again and again, and frees; else only before anything grew */
};

struct joining {
    const struct ms_model *model;
    int device;
    const struct ms_growing_site *rows;
    size_t count;
    struct ms_path *paths;   /* of the rows */
    bool *taken;             /* of the rows */
    struct ms_buffer others; /* struct other */
};

/* ---- memory that does not grow ---- */

static bool is_row(const struct joining *joining, uint32_t site)
{
    for (size_t i = 0; i < joining->count; i++) {
        if (joining->rows[i].site == site) {
            return true;
        }
    }
    return false;
}

/* When the first of the rows' sites first allocated. */
static uint64_t first_asked_ns(const struct joining *joining)
{
    uint64_t first_ns = UINT64_MAX;

    for (size_t i = 0; i < joining->count; i++) {
        struct ms_site_sums sums;

        if (ms_site_table_read(joining->model->sites, (uint8_t)joining->device,
                               joining->rows[i].site, &sums) &&
            sums.first_ns < first_ns) {
            first_ns = sums.first_ns;
        }
    }
    return first_ns;
}

/* The entry of the site's stack among the others; a new one if there is none. Null: no room. */
static struct other *place_other(struct joining *joining, uint32_t site, bool recurs)
{
    const struct ms_site_definition *is = ms_definitions_site(joining->model->definitions, site);
    struct other *all = (struct other *)joining->others.at;
    const size_t count = joining->others.bytes / sizeof(*all);
    const uint32_t python = is ? is->python : 0;
    struct other *other;

    for (size_t i = 0; i < count; i++) {
        if (all[i].python == python && all[i].recurs == recurs) {
            return &all[i];
        }
    }
    other = count < MOST_OTHERS ? ms_buffer_extend(&joining->others, sizeof(*other)) : NULL;
    if (other) {
        other->python = python;
        other->peak_bytes = 0;
        other->recurs = recurs;
        ms_path_read_from(joining->model, python, &other->path);
    }
    return other;
}

static void find_others(struct joining *joining)
{
    const ms_site_table_t *table = joining->model->sites;
    const uint8_t device = (uint8_t)joining->device;
    const uint32_t end = ms_site_table_end(table, device);
    const uint64_t grows_ns = first_asked_ns(joining);

    for (uint32_t site = 1; site < end; site = ms_site_table_after(table, device, site)) {
        struct ms_site_sums sums;

        if (!ms_site_table_read(table, device, site, &sums) || is_row(joining, site)) {
            continue;
        }

        const bool recurs = sums.allocations > 1 && sums.frees >= sums.allocations / 2;
        struct other *other =
            recurs || sums.last_ns < grows_ns ? place_other(joining, site, recurs) : NULL;

        if (other && sums.peak_bytes > other->peak_bytes) {
            other->peak_bytes = sums.peak_bytes;
        }
    }
}

static const struct other *other_at(const struct joining *joining, size_t index)
{
    return index < joining->others.bytes / sizeof(struct other)
               ? (const struct other *)joining->others.at + index
               : NULL;
}

/* Whether the line was also reached from elsewhere, and kept nothing then. If so, one of its
 * callers keeps the memory. */
static bool keeps_nothing_elsewhere(const struct joining *joining, const struct ms_place *prefix,
                                    uint32_t depth)
{
    const struct other *other;

    for (size_t i = 0; (other = other_at(joining, i)); i++) {
        const struct ms_path *path = &other->path;

        for (uint32_t at = 0; other->recurs && at < path->count &&
                              !ms_path_begins_with(joining->model, path, prefix, depth);
             at++) {
            if (ms_place_same(joining->model, path->places[at], prefix[depth - 1])) {
                return true;
            }
        }
    }
    return false;
}

/* Whether the other site allocated at another line of the function that `next` lies in, and the
 * same place called that function. */
static bool is_sibling(const struct joining *joining, const struct other *other,
                       const struct ms_place *prefix, uint32_t depth, struct ms_place next)
{
    return ms_path_begins_with(joining->model, &other->path, prefix, depth) &&
           other->path.count > depth && other->path.places[depth].code == next.code &&
           other->path.places[depth].line != next.line;
}

/* Whether the frame only calls the function whose loop keeps memory, the one that `next` lies in.
 * That is so if all memory that recurs comes by way of the frame, and another line of the function
 * keeps nothing. It is also so if the function set something up before anything grew, and never
 * again: it was called once. */
static bool is_loops_caller(const struct joining *joining, const struct ms_place *prefix,
                            uint32_t depth, struct ms_place next)
{
    const struct other *other;
    bool all = true, recurs = false, sets_up = false;

    for (size_t i = 0; (other = other_at(joining, i)); i++) {
        const bool sibling = is_sibling(joining, other, prefix, depth, next);

        sets_up |= sibling && !other->recurs;
        recurs |= sibling && other->recurs;
        all &= !other->recurs || other->path.count == 0 ||
               ms_path_begins_with(joining->model, &other->path, prefix, depth);
    }
    return sets_up || (all && recurs);
}

static bool is_users(const struct ms_model *model, uint32_t node)
{
    const struct ms_python_definition *is = ms_definitions_python(model->definitions, node);
    const struct ms_code_read *code = is ? ms_definitions_code(model->definitions, is->code) : NULL;

    return code && !ms_is_library_script(code->file, code->function);
}

/* How many places of the row's path lead to the line that called the outermost model; 0: no model
 * was called. */
static uint32_t models_caller(const struct joining *joining, size_t row)
{
    const struct ms_growing_site *grows = &joining->rows[row];
    const struct ms_doings *doings = ms_landmarks_of(joining->model->landmarks, grows->path_site);
    struct ms_path path;

    /* A trainer of a package calls a module in which the user's own step lies. */
    if (doings->doing != MS_DOING_FORWARD || !is_users(joining->model, doings->caller)) {
        return 0;
    }
    ms_path_read_from(joining->model, doings->caller, &path);
    return path.count;
}

static double each_time(const struct ms_growing_site *row)
{
    return row->rounds > 0 ? (double)row->grown_bytes / (double)row->rounds : row->bytes_per_round;
}

/* Whether most of what two operations or more allocate by way of that frame stays. */
static bool keeps_most(const struct joining *joining, const struct ms_place *prefix, uint32_t depth)
{
    const struct other *other;
    uint32_t first = 0;
    bool several = false;
    double kept = 0, freed = 0;

    for (size_t i = 0; i < joining->count; i++) {
        if (!joining->taken[i] &&
            ms_path_begins_with(joining->model, &joining->paths[i], prefix, depth)) {
            const struct ms_site_definition *site =
                ms_definitions_site(joining->model->definitions, joining->rows[i].site);

            kept += each_time(&joining->rows[i]);
            several |= site && first > 0 && site->python != first;
            first = first == 0 && site ? site->python : first;
        }
    }
    for (size_t i = 0; (other = other_at(joining, i)); i++) {
        if (other->recurs && ms_path_begins_with(joining->model, &other->path, prefix, depth)) {
            freed += (double)other->peak_bytes;
        }
    }
    return several && freed <= kept;
}

/* How many places lead to the line that called the model, if the prefix leads into a model and most
 * of that call's memory stays. Then the caller keeps a whole graph, and the line inside the model
 * only made most of it: a model that keeps something itself frees the rest of its call. 0: not
 * so. */
static uint32_t keeper_of_graph(const struct joining *joining, const struct ms_place *prefix,
                                uint32_t depth)
{
    for (size_t i = 0; i < joining->count; i++) {
        if (!joining->taken[i] &&
            ms_path_begins_with(joining->model, &joining->paths[i], prefix, depth)) {
            const uint32_t caller = models_caller(joining, i);

            if (caller > 0 && caller < depth) {
                return keeps_most(joining, prefix, caller) ? caller : 0;
            }
        }
    }
    return 0;
}

/* ---- the join ---- */

/* The growth under the place that follows the prefix; rows that are taken, or not under it, do not
 * count. */
static uint64_t grown_under(const struct joining *joining, const struct ms_place *prefix,
                            uint32_t depth)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < joining->count; i++) {
        if (!joining->taken[i] && joining->paths[i].count > 0 &&
            ms_path_begins_with(joining->model, &joining->paths[i], prefix, depth)) {
            bytes += joining->rows[i].grown_bytes;
        }
    }
    return bytes;
}

/* The next deeper place with most of it; its bytes, or 0 if there is none. */
static uint64_t largest_below(const struct joining *joining, struct ms_place *prefix,
                              uint32_t depth)
{
    struct ms_place best = {0};
    uint64_t most = 0;

    for (size_t i = 0; depth < MS_PATH_DEPTH && i < joining->count; i++) {
        const struct ms_path *path = &joining->paths[i];

        if (!joining->taken[i] && path->count > depth &&
            ms_path_begins_with(joining->model, path, prefix, depth) &&
            !ms_place_same(joining->model, path->places[depth], best)) {
            prefix[depth] = path->places[depth];

            const uint64_t bytes = grown_under(joining, prefix, depth + 1);

            if (bytes > most) {
                most = bytes;
                best = path->places[depth];
            }
        }
    }
    if (most > 0) {
        prefix[depth] = best;
    }
    return most;
}

/* How many places of the prefix lead to the frame at which most of the rows left join. */
static uint32_t join(const struct joining *joining, struct ms_place prefix[MS_PATH_DEPTH])
{
    uint64_t whole = grown_under(joining, prefix, 0);
    uint32_t depth = 0;

    for (;;) {
        const uint64_t below = largest_below(joining, prefix, depth);
        const bool most = below >= whole - whole / JOINED_PARTS;

        if (below == 0 ||
            (!most && depth > 0 && !is_loops_caller(joining, prefix, depth, prefix[depth]))) {
            break;
        }
        whole = most ? whole : below;
        depth++;
    }

    const uint32_t keeper = keeper_of_graph(joining, prefix, depth);

    depth = keeper > 0 ? keeper : depth;
    while (depth > 1 && keeps_nothing_elsewhere(joining, prefix, depth)) {
        depth--;
    }
    return depth;
}

/* ---- a graph ---- */

/* Whether the row belongs to the leak whose stacks begin with the prefix. pathless: those without
 * Python frames do, too. */
static bool is_under(const struct joining *joining, size_t row, const struct ms_place *prefix,
                     uint32_t depth, bool pathless)
{
    const struct ms_path *path = &joining->paths[row];

    return !joining->taken[row] &&
           (path->count > 0 ? ms_path_begins_with(joining->model, path, prefix, depth) : pathless);
}

static bool has_backward_passes(const struct ms_model *model)
{
    return !model->recurrence.whole || model->recurrence.passes > 0;
}

/* Whether most of what that row's call of a model makes stays. */
static bool keeps_call(const struct joining *joining, size_t row)
{
    const uint32_t caller = models_caller(joining, row);

    return caller > 0 && keeps_most(joining, joining->paths[row].places, caller);
}

/* Of any leak: a graph of one line's results may keep another line's inputs. */
static bool grows_in_call(const struct joining *joining)
{
    for (size_t i = 0; i < joining->count; i++) {
        if (ms_landmarks_of(joining->model->landmarks, joining->rows[i].site)->doing ==
            MS_DOING_FORWARD) {
            return true;
        }
    }
    return false;
}

static enum ms_leak_graph judge_graph(const struct joining *joining, const struct ms_place *prefix,
                                      uint32_t depth, bool pathless)
{
    const ms_landmarks_t *landmarks = joining->model->landmarks;
    uint64_t all = 0, called = 0, largest_called = 0, unclear = 0;
    size_t caller = 0;

    for (size_t i = 0; i < joining->count; i++) {
        const uint64_t bytes = joining->rows[i].grown_bytes;
        const uint8_t doing = ms_landmarks_of(landmarks, joining->rows[i].site)->doing;

        if (!is_under(joining, i, prefix, depth, pathless)) {
            continue;
        }
        all += bytes;
        unclear +=
            doing == MS_DOING_BACKWARD || doing == MS_DOING_UNKNOWN || joining->rows[i].before_pass
                ? bytes
                : 0;
        called += doing == MS_DOING_FORWARD ? bytes : 0;
        if (doing == MS_DOING_FORWARD && bytes > largest_called) {
            largest_called = bytes;
            caller = i;
        }
    }
    if (called > all / JOINED_PARTS && keeps_call(joining, caller)) {
        return MS_GRAPH_KEPT;
    }
    if (unclear > all / GRAPH_PARTS) {
        return MS_GRAPH_UNKNOWN;
    }
    if (grows_in_call(joining)) {
        return has_backward_passes(joining->model) ? MS_GRAPH_UNKNOWN : MS_GRAPH_UNUSED;
    }
    /* In a step that is written without modules no call is seen. */
    return !has_backward_passes(joining->model) || ms_landmarks_first_call(landmarks) != UINT32_MAX
               ? MS_GRAPH_NONE
               : MS_GRAPH_UNKNOWN;
}

/* ---- a leak ---- */

static void add_row(struct ms_leak *leak, const struct ms_growing_site *row)
{
    struct ms_growing_site *all = &leak->all;

    if (leak->sites++ == 0) {
        *all = *row;
        return;
    }
    all->rounds = row->rounds > all->rounds ? row->rounds : all->rounds;
    all->bytes_per_round += row->round == all->round ? row->bytes_per_round : 0;
    all->error += row->round == all->round ? row->error : 0;
    all->bytes_per_hour += row->bytes_per_hour;
    all->grown_bytes += row->grown_bytes;
    if (row->since_ns < all->since_ns) {
        all->since_ns = row->since_ns;
        all->since_step = row->since_step;
    }
}

/* The line that asked for most of it: a model has one stack to it for each of its layers. */
static void find_largest(const struct joining *joining, const uint16_t *own, size_t count,
                         struct ms_leak *leak)
{
    for (size_t i = 0; i < count; i++) {
        const struct ms_growing_site *row = &joining->rows[own[i]];
        uint64_t bytes = 0;
        double per_round = 0;

        for (size_t k = 0; k < count; k++) {
            const struct ms_growing_site *each = &joining->rows[own[k]];

            if (ms_site_at_one_line(joining->model, row->site, each->site)) {
                bytes += each->grown_bytes;
                per_round += each->round == row->round ? each->bytes_per_round : 0;
            }
        }
        if (bytes > leak->largest_bytes) {
            leak->largest_bytes = bytes;
            leak->largest_bytes_per_round = per_round;
            leak->all.site = row->site;
            leak->all.path_site = row->path_site;
            leak->all.every = row->every;
            leak->all.kind = row->kind;
        }
    }
}

/* Takes these rows, and those without Python frames if this is the only leak that has any. */
static void take_rows(struct joining *joining, const struct ms_place *prefix, uint32_t depth,
                      bool pathless, struct ms_leak *leak)
{
    uint64_t seen_bytes = 0;
    uint16_t own[MOST_JOINED];
    size_t count = 0;

    for (size_t i = 0; i < joining->count; i++) {
        if (is_under(joining, i, prefix, depth, pathless)) {
            joining->taken[i] = true;
            own[count++] = (uint16_t)i;
            add_row(leak, &joining->rows[i]);
            leak->bytes_each_time +=
                joining->rows[i].rounds > 0 ? (uint64_t)each_time(&joining->rows[i]) : 0;
            seen_bytes +=
                joining->rows[i].degree == MS_GROWTH_SEEN ? joining->rows[i].grown_bytes : 0;
        }
    }
    find_largest(joining, own, count, leak);
    leak->all.degree = seen_bytes >= leak->all.grown_bytes / 2 ? MS_GROWTH_SEEN : MS_GROWTH_LIKELY;
}

static void name_leak(const struct joining *joining, const struct ms_place *prefix, uint32_t depth,
                      struct ms_leak *leak)
{
    leak->has_culprit = depth > 0;
    if (depth > 0) {
        leak->culprit = ms_place_frame(joining->model, prefix[depth - 1]);
    }
    for (uint32_t i = 1; i < depth && leak->caller_count < MS_LEAK_CALLERS; i++) {
        leak->callers[leak->caller_count++] = ms_place_frame(joining->model, prefix[depth - 1 - i]);
    }
}

static int by_grown(const void *a, const void *b)
{
    const struct ms_leak *left = a, *right = b;

    return left->all.grown_bytes > right->all.grown_bytes   ? -1
           : left->all.grown_bytes < right->all.grown_bytes ? 1
                                                            : 0;
}

static size_t find(struct joining *joining, struct ms_leak *leaks)
{
    size_t found = 0;

    while (found < MS_LEAKS) {
        struct ms_place prefix[MS_PATH_DEPTH] = {{0}};
        struct ms_leak *leak = &leaks[found];
        const uint32_t depth = join(joining, prefix);

        *leak = (struct ms_leak){.graph = (uint8_t)judge_graph(joining, prefix, depth, found == 0)};
        take_rows(joining, prefix, depth, found == 0, leak);
        if (leak->sites == 0) {
            break;
        }
        name_leak(joining, prefix, depth, leak);
        found++;
    }
    qsort(leaks, found, sizeof(*leaks), by_grown);
    return found;
}

size_t ms_leaks_find(const struct ms_model *model, int device, const struct ms_growing_site *rows,
                     size_t count, struct ms_leak *leaks)
{
    struct joining joining = {.model = model,
                              .device = device,
                              .rows = rows,
                              .count = count < MOST_JOINED ? count : MOST_JOINED};
    size_t found = 0;

    if (count == 0) {
        return 0;
    }
    joining.paths = calloc(joining.count, sizeof(*joining.paths));
    joining.taken = calloc(joining.count, sizeof(*joining.taken));
    if (joining.paths && joining.taken) {
        for (size_t i = 0; i < joining.count; i++) {
            ms_path_read(model, rows[i].path_site, &joining.paths[i]);
        }
        find_others(&joining);
        found = find(&joining, leaks);
    }
    free(joining.paths);
    free(joining.taken);
    ms_buffer_free(&joining.others);
    return found;
}

uint64_t ms_leaks_bytes(const struct ms_growth *growth)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < growth->leak_count; i++) {
        bytes += growth->leaks[i].all.grown_bytes;
    }
    return bytes;
}
