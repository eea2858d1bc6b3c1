/* memshim top: the command. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "report/traces.h"
#include "shim/cli/cli.h"
#include "shim/cli/top.h"

#define NS_PER_S  UINT64_C(1000000000)
#define WHY_BYTES (PATH_MAX + 512)

static const char usage[] =
    "Usage: memshim top [DIR|PID] [--once] [--json] [--interval S] [--sites N]\n"
    "                   [--prometheus FILE]\n"
    "Shows how every process of a run stands: used and cap, live, reserved, fragmentation, what\n"
    "lies on the host, status, and who holds the memory. It reads the traces that the processes\n"
    "write, and does not disturb them.\n\n"
    "  DIR           an output folder (its newest run), a run's folder, a process's, or a trace;\n"
    "                default: the newest run in MEMSHIM_OUTPUT, or in memshim-out\n"
    "  PID           a process, and those that it started, by the traces that they have mapped\n"
    "                (a folder of that name: ./PID)\n"
    "  --once        show it once, and end; the status is 1 where a trace could not be read\n"
    "  --json        for programs: one line each time (schema memshim-top/1)\n"
    "  --interval S  seconds between two looks, 0.1 or more; default 2\n"
    "  --sites N     lines of code of each device, 0 to 50; default 5. Reading them takes all\n"
    "                records of a trace, and is done beside the rest, less often\n"
    "  --prometheus FILE  show nothing: write FILE each time, whole, for node_exporter's textfile\n"
    "                collector (FILE has to end in .prom for it)\n\n"
    "Used is what is charged against the cap. Processes without a trace (MEMSHIM_TRACE=off) are\n"
    "not seen. `memshim statistics` lists the figures and their names.\n";

struct call {
    const char *target; /* null: the newest run */
    const char *prometheus;
    uint64_t interval_ns;
    size_t most_sites;
    bool once, json;
};

static int wrong(const char *what, const char *word)
{
    (void)fprintf(stderr, "memshim top: %s '%s'; --help says more\n", what, word);
    return MS_CLI_WRONG_CALL;
}

/* The number at `text`, and nothing behind it. */
static bool read_number(const char *text, double least, double most, double *number)
{
    char *end = NULL;
    if (text == NULL || text[0] == '\0' || text[strspn(text, "0123456789.")] != '\0') {
        return false;
    }
    *number = strtod(text, &end);
    return *end == '\0' && *number >= least && *number <= most;
}

/* An option with a value. -1 where it is good, else the exit status. */
static int read_value(struct call *call, const char *name, const char *value)
{
    double number = 0;
    if (strcmp(name, "--interval") == 0) {
        if (!read_number(value, 0.1, 86400, &number)) {
            return wrong("--interval wants seconds, 0.1 to 86400, not", value ? value : "");
        }
        call->interval_ns = (uint64_t)(number * 1e9);
    } else if (strcmp(name, "--sites") == 0) {
        if (!read_number(value, 0, MS_TOP_SITES_MAX, &number)) {
            return wrong("--sites wants a number, 0 to 50, not", value ? value : "");
        }
        call->most_sites = (size_t)number;
    } else {
        if (value == NULL || value[0] == '\0') {
            return wrong("--prometheus wants a file, not", "");
        }
        call->prometheus = value;
    }
    return -1;
}

static bool takes_value(const char *word, size_t length)
{
    static const char *const names[] = {"--interval", "--sites", "--prometheus"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strlen(names[i]) == length && strncmp(word, names[i], length) == 0) {
            return true;
        }
    }
    return false;
}

/* -1 where the call is good, else the exit status. */
static int parse(int argc, char **argv, struct call *call)
{
    *call = (struct call){.interval_ns = 2 * NS_PER_S, .most_sites = 5};
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        const size_t length = strcspn(word, "=");
        int status = -1;
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            (void)fputs(usage, stdout);
            status = 0;
        } else if (strcmp(word, "--once") == 0) {
            call->once = true;
        } else if (strcmp(word, "--json") == 0) {
            call->json = true;
        } else if (takes_value(word, length)) {
            char name[16];
            (void)snprintf(name, sizeof(name), "%.*s", (int)length, word);
            const char *next = i + 1 < argc ? argv[i + 1] : NULL;
            status = read_value(call, name, word[length] == '=' ? word + length + 1 : next);
            i += word[length] != '=';
        } else if (word[0] == '-') {
            status = wrong("there is no option", word);
        } else if (call->target != NULL) {
            status = wrong("one folder or process is enough, and there is also", word);
        } else {
            call->target = word;
        }
        if (status >= 0) {
            return status;
        }
    }
    return call->json && call->prometheus != NULL
               ? wrong("--prometheus shows nothing, not even", "--json")
               : -1;
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
        (void)fprintf(stderr, "memshim top: the standard output cannot be written: %s\n",
                      strerror(errno));
    }
}

static int save_prometheus(const struct call *call, const struct ms_top_frame *frame)
{
    struct ms_buffer text = {0};
    ms_top_prometheus(frame, &text);
    const int error = ms_buffer_save(&text, call->prometheus);
    ms_buffer_free(&text);
    if (error != 0) {
        (void)fprintf(stderr, "memshim top: %s cannot be written: %s\n", call->prometheus,
                      strerror(error));
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
        (void)fprintf(stderr, "memshim top: there is no memory\n");
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
        (void)fprintf(stderr, "memshim top: %s%s\n", why, waits ? "; waiting for one" : "");
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
