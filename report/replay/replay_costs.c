/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the costs of driver calls: the default, and reading one from a file. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/replay/replay.h"

#define HEADER "call,bytes,median_ns,p99_ns"

const char *const ms_replay_call_names[MS_REPLAY_CALL_COUNT] = {
    [MS_REPLAY_RESERVE] = "reserve",
    [MS_REPLAY_RESERVE_FREE] = "reserve_free",
    [MS_REPLAY_CREATE] = "create",
    [MS_REPLAY_CREATE_HOST] = "create_host",
    [MS_REPLAY_RELEASE] = "release",
    [MS_REPLAY_MAP] = "map",
    [MS_REPLAY_SET_ACCESS] = "set_access",
    [MS_REPLAY_UNMAP] = "unmap",
    [MS_REPLAY_FENCE_TAKE] = "mark",
    [MS_REPLAY_FENCE_QUERY] = "mark_query",
    [MS_REPLAY_FENCE_WAIT] = "mark_wait",
    [MS_REPLAY_STREAM_WAIT] = "stream_wait",
    [MS_REPLAY_HALT] = "halt",
    [MS_REPLAY_COPY_DOWN] = "copy_down",
    [MS_REPLAY_COPY_UP] = "copy_up",
};

/* The 99th percentiles of the same benchmark, where it has them. */
static const struct {
    enum ms_dry_op op;
    uint64_t p99_ns;
} known[MS_REPLAY_CALL_COUNT] = {
    [MS_REPLAY_RESERVE] = {MS_DRY_ADDRESS_RESERVE, 0},
    [MS_REPLAY_RESERVE_FREE] = {MS_DRY_ADDRESS_FREE, 0},
    [MS_REPLAY_CREATE] = {MS_DRY_CHUNK_CREATE, 381000},
    [MS_REPLAY_CREATE_HOST] = {MS_DRY_CHUNK_CREATE, 381000},
    [MS_REPLAY_RELEASE] = {MS_DRY_CHUNK_RELEASE, 0},
    [MS_REPLAY_MAP] = {MS_DRY_MAP, 5000},
    [MS_REPLAY_SET_ACCESS] = {MS_DRY_SET_ACCESS, 54000},
    [MS_REPLAY_UNMAP] = {MS_DRY_UNMAP, 39000},
    [MS_REPLAY_FENCE_TAKE] = {MS_DRY_FENCE_TAKE, 0},
    [MS_REPLAY_FENCE_QUERY] = {MS_DRY_FENCE_QUERY, 0},
    [MS_REPLAY_FENCE_WAIT] = {MS_DRY_FENCE_WAIT, 0},
    [MS_REPLAY_STREAM_WAIT] = {MS_DRY_STREAM_WAIT, 0},
    [MS_REPLAY_HALT] = {MS_DRY_HALT, 0},
    [MS_REPLAY_COPY_DOWN] = {MS_DRY_COPY, 0},
    [MS_REPLAY_COPY_UP] = {MS_DRY_COPY, 0},
};

static uint64_t default_ns(int call)
{
    switch (call) {
    case MS_REPLAY_COPY_DOWN:
        return ms_dry_default_costs.down_ns_per_mib;
    case MS_REPLAY_COPY_UP:
        return ms_dry_default_costs.up_ns_per_mib;
    default:
        return ms_dry_default_costs.call_ns[known[call].op];
    }
}

bool ms_call_costs_default(struct ms_call_costs *costs)
{
    memset(costs, 0, sizeof(*costs));
    for (int call = 0; call < MS_REPLAY_CALL_COUNT; call++) {
        const uint64_t median_ns = default_ns(call);
        struct ms_call_cost *row = ms_buffer_extend(&costs->rows, sizeof(*row));

        if (row) {
            *row = (struct ms_call_cost){.call = (uint8_t)call,
                                         .median_ns = median_ns,
                                         .p99_ns =
                                             known[call].p99_ns ? known[call].p99_ns : median_ns};
        }
    }
    return !costs->rows.failed;
}

/* The row of the smallest size not below `bytes`, else of the largest. */
const struct ms_call_cost *ms_call_cost_of(const struct ms_call_costs *costs,
                                           enum ms_replay_call call, uint64_t bytes)
{
    const struct ms_call_cost *row = (const struct ms_call_cost *)costs->rows.at;
    const struct ms_call_cost *end = row + costs->rows.bytes / sizeof(*row);
    const struct ms_call_cost *found = NULL;

    for (; row < end && !(found && found->bytes >= bytes); row++) {
        found = row->call == call ? row : found;
    }
    return found;
}

static uint64_t cost_ns(const struct ms_call_costs *costs, enum ms_replay_call call, uint64_t bytes)
{
    const struct ms_call_cost *row = ms_call_cost_of(costs, call, bytes);

    return row ? row->median_ns : 0;
}

void ms_call_costs_of_halts(const struct ms_call_costs *costs, struct ms_dry_costs *out)
{
    memset(out, 0, sizeof(*out));
    out->call_ns[MS_DRY_HALT] = cost_ns(costs, MS_REPLAY_HALT, 0);
    out->call_ns[MS_DRY_MAP] = cost_ns(costs, MS_REPLAY_MAP, MS_REPLAY_GRANULE_BYTES);
    out->call_ns[MS_DRY_UNMAP] = cost_ns(costs, MS_REPLAY_UNMAP, MS_REPLAY_GRANULE_BYTES);
    out->call_ns[MS_DRY_SET_ACCESS] = cost_ns(costs, MS_REPLAY_SET_ACCESS, MS_REPLAY_GRANULE_BYTES);
    out->down_ns_per_mib = cost_ns(costs, MS_REPLAY_COPY_DOWN, 0);
    out->up_ns_per_mib = cost_ns(costs, MS_REPLAY_COPY_UP, 0);
}

void ms_call_costs_free(struct ms_call_costs *costs)
{
    ms_buffer_free(&costs->rows);
}

static int by_call_and_bytes(const void *a, const void *b)
{
    const struct ms_call_cost *left = a, *right = b;

    if (left->call != right->call) {
        return left->call < right->call ? -1 : 1;
    }
    return left->bytes < right->bytes ? -1 : left->bytes > right->bytes;
}

/* Cuts a whole number off, up to the comma or the end. */
static bool take_number(char **rest, uint64_t *out)
{
    const char *text = strsep(rest, ",");
    char *end;

    if (!text || *text < '0' || *text > '9') {
        return false;
    }
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *end == '\0' && errno == 0;
}

/* Null, or the wrong field. */
static const char *take_row(struct ms_call_costs *costs, char *line)
{
    struct ms_call_cost row = {.call = MS_REPLAY_CALL_COUNT};
    char *rest = line;
    const char *name = strsep(&rest, ",");

    for (int call = 0; call < MS_REPLAY_CALL_COUNT; call++) {
        if (strcmp(ms_replay_call_names[call], name) == 0) {
            row.call = (uint8_t)call;
        }
    }
    if (row.call == MS_REPLAY_CALL_COUNT) {
        return "call";
    }
    if (!take_number(&rest, &row.bytes)) {
        return "bytes";
    }
    if (!take_number(&rest, &row.median_ns)) {
        return "median_ns";
    }
    if (!take_number(&rest, &row.p99_ns) || rest) {
        return "p99_ns";
    }
    ms_buffer_append(&costs->rows, (const char *)&row, sizeof(row));
    return NULL;
}

static bool take_lines(struct ms_call_costs *costs, FILE *file, const char *path, char *why,
                       size_t why_bytes)
{
    char line[512];
    bool header = false;

    for (uint64_t number = 1; fgets(line, sizeof(line), file); number++) {
        line[strcspn(line, "\r\n")] = '\0';
        if (line[0] == '\0' || line[0] == '#') {
            continue;
        }
        if (!header) {
            header = strcmp(line, HEADER) == 0;
            if (!header) {
                (void)snprintf(why, why_bytes, "%s:%" PRIu64 ": the header is not " HEADER, path,
                               number);
                return false;
            }
            continue;
        }

        const char *field = take_row(costs, line);

        if (field) {
            (void)snprintf(why, why_bytes, "%s:%" PRIu64 ": %s is none", path, number, field);
            return false;
        }
    }
    if (ferror(file) || costs->rows.failed || !header) {
        (void)snprintf(why, why_bytes, "%s: cannot be read, or is empty", path);
        return false;
    }
    return true;
}

bool ms_call_costs_read(struct ms_call_costs *costs, const char *path, char *why, size_t why_bytes)
{
    FILE *file = fopen(path, "re");
    bool read = false;

    memset(costs, 0, sizeof(*costs));
    if (!file) {
        (void)snprintf(why, why_bytes, "%s: %s", path, strerror(errno));
        return false;
    }
    read = take_lines(costs, file, path, why, why_bytes);
    (void)fclose(file);
    if (read) {
        qsort(costs->rows.at, costs->rows.bytes / sizeof(struct ms_call_cost),
              sizeof(struct ms_call_cost), by_call_and_bytes);
    }
    return read;
}
