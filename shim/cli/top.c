/* SPDX-License-Identifier: Apache-2.0 */
/* memshim top: the command. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "report/read/traces.h"
#include "shim/cli/arguments/complain.h"
#include "shim/cli/arguments/parse.h"
#include "shim/cli/arguments/values.h"
#include "shim/cli/cli.h"
#include "shim/cli/top.h"

#define NS_PER_S  UINT64_C(1000000000)
#define WHY_BYTES (PATH_MAX + 512)

struct call {
    const char *target; /* null: the newest run */
    const char *prometheus;
    uint64_t interval_ns;
    size_t most_sites;
    bool once, json;
};

static bool take_option(void *ctx, const struct ms_cli_option *option, const char *value)
{
    struct call *call = ctx;
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
    case MS_CLI_TOP_PROMETHEUS:
        return ms_cli_take_file(value, &call->prometheus);
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
    struct call *call = ctx;

    if (call->target != NULL) {
        return ms_cli_wrong(MS_CLI_TOP, "one folder or process is enough, and there is also '%s'",
                            word);
    }
    call->target = word;
    return -1;
}

/* -1 where the call is good, else the exit status. */
static int parse(int argc, char **argv, struct call *call)
{
    static const struct ms_cli_reader reader = {.option = take_option, .operand = take_target};

    *call = (struct call){.interval_ns = 2 * NS_PER_S, .most_sites = 5};

    const int status = ms_cli_parse(MS_CLI_TOP, argc, argv, &reader, call);

    if (status < 0 && call->json && call->prometheus != NULL) {
        return ms_cli_wrong(MS_CLI_TOP, "--prometheus shows nothing, not even --json");
    }
    return status;
}

/* --- one frame -------------------------------------------------------------------------------- */

static int by_rank(const void *a, const void *b)
{
    const struct ms_top_process *left = a, *right = b;
    const int hosts = strcmp(left->host, right->host);
    if (left->rank != right->rank) {
        return left->rank < right->rank ? -1 : 1;
    }
    if (hosts != 0) {
        return hosts;
    }
    return left->pid < right->pid ? -1 : left->pid > right->pid;
}

/* With --once they are waited for. */
static void add_sites(const struct call *call, struct ms_top_frame *frame)
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

/* False where there is no memory. */
static bool make_frame(const struct call *call, const struct ms_buffer *found,
                       struct ms_top_frame *frame)
{
    struct timespec now = {0};
    *frame = (struct ms_top_frame){.count = ms_traces_count(found), .most_sites = call->most_sites};
    frame->processes = calloc(frame->count + 1, sizeof(*frame->processes));
    frame->sites = calloc(frame->count + 1, sizeof(*frame->sites));
    if (frame->processes == NULL || frame->sites == NULL) {
        return false;
    }
    for (size_t i = 0; i < frame->count; i++) {
        ms_top_read(ms_traces_at(found, i), &frame->processes[i]);
    }
    qsort(frame->processes, frame->count, sizeof(*frame->processes), by_rank);
    if (call->most_sites > 0 && call->prometheus == NULL) {
        add_sites(call, frame);
    }
    (void)clock_gettime(CLOCK_REALTIME, &now);
    frame->unix_ns = (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
    if (frame->count > 0 && frame->processes[0].run_id[0] != '\0') {
        (void)snprintf(frame->target, sizeof(frame->target), "run %s", frame->processes[0].run_id);
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

/* --- the terminal ----------------------------------------------------------------------------- */

#define ENTER_SCREEN \
    "\033[?1049h\033[?25l\033[?7l" /* another page, no cursor, long lines are cut */
#define LEAVE_SCREEN "\033[?7h\033[?25h\033[?1049l"

/* As many lines as the window has. */
static void draw(const struct ms_buffer *text)
{
    struct winsize window = {0};
    int lines = ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_row > 1
                    ? window.ws_row - 1
                    : INT_MAX;
    const char *at = text->at;
    const char *end = text->at + text->bytes;
    (void)fputs("\033[H", stdout);
    while (at < end && lines-- > 0) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        const size_t length = (size_t)((line_end != NULL ? line_end : end) - at);
        (void)fwrite(at, 1, length, stdout);
        (void)fputs("\033[K\r\n", stdout);
        at += length + 1;
    }
    (void)fputs("\033[J", stdout);
    (void)fflush(stdout);
}

/* Where looks are shown. */
struct screen {
    bool terminal;         /* redrawn in place */
    struct ms_buffer last; /* what stands there */
};

static void show(const struct call *call, const struct ms_top_frame *frame, struct screen *screen)
{
    ms_buffer_free(&screen->last);
    (call->json ? ms_top_json : ms_top_text)(frame, &screen->last);
    if (screen->terminal) {
        draw(&screen->last);
        return;
    }
    (void)fwrite(screen->last.at, 1, screen->last.bytes, stdout);
    if (!call->once && !call->json) {
        (void)fputs("\n", stdout);
    }
    if (fflush(stdout) != 0) {
        ms_complain("memshim top: the standard output cannot be written: %s", strerror(errno));
    }
}

static int save_prometheus(const struct call *call, const struct ms_top_frame *frame)
{
    struct ms_buffer text = {0};
    ms_top_prometheus(frame, &text);
    const int error = ms_buffer_save(&text, call->prometheus);
    ms_buffer_free(&text);
    if (error != 0) {
        ms_complain("memshim top: %s cannot be written: %s", call->prometheus, strerror(error));
    }
    return error != 0 ? 1 : 0;
}

/* --- the loop --------------------------------------------------------------------------------- */

/* Until the time has passed; at once where the window changes. True where this is to end. */
static bool wait_for_next(const sigset_t *signals, uint64_t interval_ns)
{
    const struct timespec span = {(time_t)(interval_ns / NS_PER_S), (long)(interval_ns % NS_PER_S)};
    const int signal = sigtimedwait(signals, NULL, &span);
    return signal > 0 && signal != SIGWINCH;
}

static int look(const struct call *call, const struct ms_buffer *found, struct screen *screen)
{
    struct ms_top_frame frame;
    int status = 1;
    if (!make_frame(call, found, &frame)) {
        ms_complain("memshim top: there is no memory");
    } else if (call->prometheus != NULL) {
        status = save_prometheus(call, &frame) | (is_whole(&frame) ? 0 : 1);
    } else {
        show(call, &frame, screen);
        status = is_whole(&frame) ? 0 : 1;
    }
    free_frame(&frame);
    return status;
}

/* A run that is not there any more leaves what was found of it last. */
static bool find(const struct call *call, struct ms_buffer *found, char *why, size_t why_bytes)
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

static int watch(const struct call *call, struct ms_buffer *found)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};
    struct screen screen = {.terminal = !call->json && call->prometheus == NULL &&
                                        isatty(STDOUT_FILENO) == 1};
    char why[WHY_BYTES];
    sigset_t signals;
    (void)sigemptyset(&signals);
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        (void)sigaddset(&signals, ends[i]);
    }
    (void)sigprocmask(SIG_BLOCK, &signals, NULL);
    if (screen.terminal) {
        (void)fputs(ENTER_SCREEN, stdout);
    }
    do {
        (void)look(call, found, &screen);
        (void)find(call, found, why, sizeof(why));
    } while (ferror(stdout) == 0 && !wait_for_next(&signals, call->interval_ns));
    if (screen.terminal) {
        (void)fputs(LEAVE_SCREEN, stdout);
        (void)fwrite(screen.last.at, 1, screen.last.bytes, stdout);
    }
    ms_buffer_free(&screen.last);
    return 0;
}

int ms_cli_top(int argc, char **argv)
{
    struct call call;
    struct ms_buffer found = {0};
    struct screen screen = {0};
    char why[WHY_BYTES];
    int status = parse(argc, argv, &call);
    if (status >= 0) {
        return status;
    }
    if (!find(&call, &found, why, sizeof(why))) {
        /* What collects figures for good may be started before the first run. */
        const bool waits = call.prometheus != NULL && !call.once;
        ms_complain("memshim top: %s%s", why, waits ? "; waiting for one" : "");
        if (!waits) {
            return 1;
        }
    }
    status = call.once ? look(&call, &found, &screen) : watch(&call, &found);
    status |= ferror(stdout) != 0 ? 1 : 0;
    ms_buffer_free(&screen.last);
    ms_buffer_free(&found);
    return status;
}
