/* SPDX-License-Identifier: Apache-2.0 */
/* memshim top: the command. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/clock.h"
#include "allocator/base/path.h"
#include "report/read/traces.h"
#include "shim/cli/arguments/cli.h"
#include "shim/cli/arguments/complain.h"
#include "shim/cli/arguments/parse.h"
#include "shim/cli/arguments/values.h"
#include "shim/cli/top/terminal.h"
#include "shim/cli/top/top.h"

#define WHY_BYTES (PATH_MAX + 512)

struct top_call {
    const char *target;  /* null: the newest run */
    const char *metrics; /* the file that is written instead of output, or null */
    enum ms_top_metrics form;
    uint64_t interval_ns;
    size_t most_sites;
    enum ms_top_sort sort;
    bool once, json;
};

/* The sort orders: the option's words; their first letters are the keys. */
static const char *const sorts[] = {
    [MS_TOP_BY_RANK] = "rank",
    [MS_TOP_BY_USED] = "used",
    [MS_TOP_BY_LIVE] = "live",
    [MS_TOP_BY_HOST] = "host",
};

#define SORTS (sizeof(sorts) / sizeof(*sorts))

static bool take_sort(const char *word, enum ms_top_sort *sort)
{
    for (size_t i = 0; i < SORTS; i++) {
        if (strcmp(word, sorts[i]) == 0) {
            *sort = (enum ms_top_sort)i;
            return true;
        }
    }
    return false;
}

static bool take_option(void *ctx, const struct ms_cli_option *option, const char *value)
{
    struct top_call *call = ctx;
    double seconds = 0;
    uint64_t sites = 0;
    bool good = true;

    switch ((int)option->id) {
    case MS_CLI_TOP_INTERVAL:
        good = ms_cli_take_number(value, 0.1, 86400, &seconds);
        call->interval_ns = (uint64_t)(seconds * 1e9);
        return good;
    case MS_CLI_TOP_SITES:
        good = ms_cli_take_count(value, MS_TOP_SITES_MAX, &sites);
        call->most_sites = (size_t)sites;
        return good;
    case MS_CLI_TOP_SORT:
        return take_sort(value, &call->sort);
    case MS_CLI_TOP_PROMETHEUS:
        call->form = MS_TOP_PROMETHEUS;
        return ms_cli_take_file(value, &call->metrics);
    case MS_CLI_TOP_OPENMETRICS:
        call->form = MS_TOP_OPENMETRICS;
        return ms_cli_take_file(value, &call->metrics);
    case MS_CLI_TOP_ONCE:
        call->once = true;
        return true;
    default:
        call->json = true;
        return true;
    }
}

static int take_target(void *ctx, const char *word)
{
    struct top_call *call = ctx;

    if (call->target != NULL) {
        return ms_cli_wrong(MS_CLI_TOP, "it shows one folder or process, and '%s' is a second",
                            word);
    }
    call->target = word;
    return -1;
}

/* -1 if the call is good, otherwise the exit status. */
static int parse(int argc, char **argv, struct top_call *call)
{
    static const struct ms_cli_reader reader = {.option = take_option, .operand = take_target};

    *call = (struct top_call){.interval_ns = 2 * MS_NS_PER_S, .most_sites = 5};

    const int status = ms_cli_parse(MS_CLI_TOP, argc, argv, &reader, call);

    if (status < 0 && call->json && call->metrics != NULL) {
        return ms_cli_wrong(MS_CLI_TOP,
                            "--%s writes a file instead of output; it does not go with --json",
                            call->form == MS_TOP_PROMETHEUS ? "prometheus" : "openmetrics");
    }
    return status;
}

/* --- one frame -------------------------------------------------------------------------------- */

static int by_rank(const void *a, const void *b)
{
    const struct ms_top_process *left = a, *right = b;
    const int hosts = strcmp(left->header.host, right->header.host);
    if (left->header.rank != right->header.rank) {
        return left->header.rank < right->header.rank ? -1 : 1;
    }
    if (hosts != 0) {
        return hosts;
    }
    return left->header.pid < right->header.pid ? -1 : left->header.pid > right->header.pid;
}

/* The largest value among its devices. */
static uint64_t value_of(const struct ms_top_process *process, enum ms_top_sort sort)
{
    uint64_t most = 0;
    for (size_t i = 0; i < ms_top_device_count(process); i++) {
        const struct memshim_stats *stats = &ms_top_device_at(process, i)->stats;
        const uint64_t value = sort == MS_TOP_BY_USED   ? stats->used_bytes
                               : sort == MS_TOP_BY_LIVE ? stats->live_bytes
                                                        : stats->host_bytes;
        most = value > most ? value : most;
    }
    return most;
}

static int by_value(const void *a, const void *b, void *sort)
{
    const uint64_t left = value_of(a, *(enum ms_top_sort *)sort);
    const uint64_t right = value_of(b, *(enum ms_top_sort *)sort);
    return left != right ? (left > right ? -1 : 1) : by_rank(a, b);
}

static void sort_rows(struct ms_top_frame *frame, enum ms_top_sort sort)
{
    if (sort == MS_TOP_BY_RANK) {
        qsort(frame->processes, frame->count, sizeof(*frame->processes), by_rank);
    } else {
        qsort_r(frame->processes, frame->count, sizeof(*frame->processes), by_value, &sort);
    }
}

/* With --once this waits for them. */
static void add_sites(const struct top_call *call, struct ms_top_frame *frame)
{
    const char **paths = calloc(frame->count + 1, sizeof(*paths));
    size_t wanted = 0;
    for (size_t i = 0; i < frame->count && paths != NULL; i++) {
        const struct ms_top_process *process = &frame->processes[i];
        if (process->why[0] != '\0') {
            continue;
        }
        paths[wanted++] = process->path;
        if (call->once) {
            ms_top_sites_read(process->path, &frame->sites[i]);
        } else {
            (void)ms_top_worker_get(process->path, &frame->sites[i]);
        }
    }
    if (!call->once && paths != NULL) {
        ms_top_worker_want(paths, wanted);
    }
    free(paths);
}

/* False: no memory. */
static bool make_frame(const struct top_call *call, const struct ms_buffer *found,
                       struct ms_top_frame *frame)
{
    *frame = (struct ms_top_frame){.count = ms_traces_count(found), .most_sites = call->most_sites};
    frame->processes = calloc(frame->count + 1, sizeof(*frame->processes));
    frame->sites = calloc(frame->count + 1, sizeof(*frame->sites));
    if (frame->processes == NULL || frame->sites == NULL) {
        return false;
    }
    for (size_t i = 0; i < frame->count; i++) {
        ms_top_read(ms_traces_at(found, i), &frame->processes[i]);
    }
    ms_top_read_groups(frame->processes, frame->count);
    sort_rows(frame, call->sort);
    frame->utf8 = ms_terminal_has_blocks();
    frame->width = call->json ? 0 : ms_terminal_width();
    if (call->most_sites > 0 && call->metrics == NULL) {
        add_sites(call, frame);
    }
    frame->unix_ns = ms_clock_unix_ns();
    if (frame->count > 0 && frame->processes[0].header.run_id[0] != '\0') {
        (void)snprintf(frame->target, sizeof(frame->target), "run %s",
                       frame->processes[0].header.run_id);
    }
    return true;
}

static bool is_whole(const struct ms_top_frame *frame)
{
    for (size_t i = 0; i < frame->count; i++) {
        if (frame->processes[i].why[0] != '\0') {
            return false;
        }
    }
    return true;
}

static void free_frame(struct ms_top_frame *frame)
{
    for (size_t i = 0; i < frame->count; i++) {
        if (frame->processes != NULL) {
            ms_top_process_free(&frame->processes[i]);
        }
        if (frame->sites != NULL) {
            ms_top_sites_free(&frame->sites[i]);
        }
    }
    free(frame->processes);
    free(frame->sites);
}

/* Where the figures are shown. */
struct screen {
    bool terminal;         /* redrawn in place */
    struct ms_buffer last; /* the text on the screen */
};

static void show(const struct top_call *call, const struct ms_top_frame *frame,
                 struct screen *screen)
{
    ms_buffer_free(&screen->last);
    (call->json ? ms_top_json : ms_top_text)(frame, &screen->last);
    if (screen->terminal) {
        ms_terminal_draw(screen->last.at, screen->last.bytes);
        return;
    }
    (void)fwrite(screen->last.at, 1, screen->last.bytes, stdout);
    if (!call->once && !call->json) {
        (void)fputs("\n", stdout);
    }
    if (fflush(stdout) != 0) {
        ms_complain("memshim top: cannot write to standard output: %s", strerror(errno));
    }
}

static int save_metrics(const struct top_call *call, const struct ms_top_frame *frame)
{
    struct ms_buffer text = {0};
    ms_top_print_metrics(frame, call->form, &text);
    const int error = ms_buffer_save(&text, call->metrics);
    ms_buffer_free(&text);
    if (error != 0) {
        ms_complain("memshim top: cannot write %s: %s", call->metrics, strerror(error));
    }
    return error != 0 ? 1 : 0;
}

/* --- the loop --------------------------------------------------------------------------------- */

static int print_once(const struct top_call *call, const struct ms_buffer *found,
                      struct screen *screen)
{
    struct ms_top_frame frame;
    int status = 1;
    if (!make_frame(call, found, &frame)) {
        ms_complain("memshim top: out of memory");
    } else if (call->metrics != NULL) {
        status = save_metrics(call, &frame) | (is_whole(&frame) ? 0 : 1);
    } else {
        show(call, &frame, screen);
        status = is_whole(&frame) ? 0 : 1;
    }
    free_frame(&frame);
    return status;
}

/* If the run no longer exists, what was last found of it stays. */
static bool find(const struct top_call *call, struct ms_buffer *found, char *why, size_t why_bytes)
{
    struct ms_buffer again = {0};
    if (!ms_top_find(call->target, &again, why, why_bytes)) {
        ms_buffer_free(&again);
        return false;
    }
    ms_buffer_free(found);
    *found = again;
    return true;
}

/* False: the command is to end. */
static bool obey(struct top_call *call, int key)
{
    for (size_t i = 0; i < SORTS; i++) {
        if (key == sorts[i][0]) {
            call->sort = (enum ms_top_sort)i;
        }
    }
    return key != 'q' && key != MS_TERMINAL_END;
}

static int watch(struct top_call *call, struct ms_buffer *found)
{
    struct screen screen = {.terminal =
                                !call->json && call->metrics == NULL && isatty(STDOUT_FILENO) == 1};
    char why[WHY_BYTES];
    ms_terminal_begin(screen.terminal);
    do {
        (void)print_once(call, found, &screen);
        (void)find(call, found, why, sizeof(why));
    } while (ferror(stdout) == 0 && obey(call, ms_terminal_wait(call->interval_ns)));
    ms_terminal_end();
    if (screen.terminal) {
        (void)fwrite(screen.last.at, 1, screen.last.bytes, stdout);
    }
    ms_buffer_free(&screen.last);
    return 0;
}

int ms_cli_top(int argc, char **argv)
{
    struct top_call call;
    struct ms_buffer found = {0};
    struct screen screen = {0};
    char why[WHY_BYTES];
    int status = parse(argc, argv, &call);
    if (status >= 0) {
        return status;
    }
    if (call.form == MS_TOP_PROMETHEUS && !ms_name_ends_with(call.metrics, ".prom")) {
        ms_complain("memshim top: node_exporter reads files that end in .prom; %s does not",
                    call.metrics);
    }
    if (!find(&call, &found, why, sizeof(why))) {
        /* A permanent collector of figures may be started before the first run. */
        const bool waits = call.metrics != NULL && !call.once;
        ms_complain("memshim top: %s%s", why, waits ? "; waiting for one" : "");
        if (!waits) {
            return 1;
        }
    }
    status = call.once ? print_once(&call, &found, &screen) : watch(&call, &found);
    status |= ferror(stdout) != 0 ? 1 : 0;
    ms_buffer_free(&screen.last);
    ms_buffer_free(&found);
    return status;
}
