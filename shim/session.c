#include "shim/session.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "allocator/slab.h"
#include "report/render.h"
#include "shim/hot.h"
#include "shim/identity.h"
#include "shim/life.h"
#include "shim/log.h"
#include "shim/memshim.h"
#include "shim/options.h"
#include "shim/sites/site.h"
#include "shim/stats.h"
#include "shim/status.h"
#include "shim/torch.h"

#define EARLY_BYTES 4096 /* of notes and versions from before the trace */
#define VERSIONS    4

#define REPORT_STACK_BYTES ((size_t)1 << 20)

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
MS_HOT_DATA static _Atomic(ms_trace_t *) trace;
static bool open_tried;                   /* under opening */
static bool device_noted[MS_DEVICES_MAX]; /* under opening */

/* Of the one who opens: too large for a small thread's stack. */
static struct {
    struct ms_identity self;
    char fallback[PATH_MAX], options[4096], note[2 * PATH_MAX];
} texts;

/* What was told before there was a trace. Taken under `opening` as well as without it. */
static pthread_mutex_t early = PTHREAD_MUTEX_INITIALIZER;
static char early_notes[EARLY_BYTES]; /* under early: one after the other, '\n' behind each */
static struct early_version {
    char what[16], version[64];
} early_versions[VERSIONS]; /* under early */

MS_HOT ms_trace_t *ms_session_trace(void)
{
    return atomic_load_explicit(&trace, memory_order_acquire);
}

MS_HOT void ms_session_emit(const struct ms_event *event)
{
    ms_trace_t *open = ms_session_trace();
    if (open != NULL) {
        ms_trace_emit(open, event);
    }
}

MS_HOT static void emit_to_session(void *ctx, const struct ms_event *event)
{
    (void)ctx;
    ms_session_emit(event);
}

struct ms_event_sink ms_session_sink(void)
{
    return (struct ms_event_sink){emit_to_session, NULL};
}

/* --- Before there is a trace -------------------------------------------------------------------
 */

void ms_session_note(const char *text)
{
    ms_trace_t *open = ms_session_trace();
    if (open != NULL) {
        ms_trace_note(open, text);
        return;
    }
    pthread_mutex_lock(&early);
    size_t used = strlen(early_notes);
    if (used + strlen(text) + 2 <= sizeof(early_notes)) {
        (void)snprintf(early_notes + used, sizeof(early_notes) - used, "%s\n", text);
    }
    pthread_mutex_unlock(&early);
}

void ms_session_version(const char *what, const char *version)
{
    ms_trace_t *open = ms_session_trace();
    if (open != NULL) {
        ms_trace_version(open, what, version);
        return;
    }
    pthread_mutex_lock(&early);
    for (int i = 0; i < VERSIONS; i++) {
        if (early_versions[i].what[0] == '\0') {
            strncpy(early_versions[i].what, what, sizeof(early_versions[i].what) - 1);
            strncpy(early_versions[i].version, version, sizeof(early_versions[i].version) - 1);
            break;
        }
    }
    pthread_mutex_unlock(&early);
}

static void hand_over_early(ms_trace_t *open)
{
    pthread_mutex_lock(&early);
    for (int i = 0; i < VERSIONS && early_versions[i].what[0] != '\0'; i++) {
        ms_trace_version(open, early_versions[i].what, early_versions[i].version);
    }
    for (char *line = early_notes; *line != '\0';) {
        char *end = strchr(line, '\n');
        *end = '\0';
        ms_trace_note(open, line);
        line = end + 1;
    }
    pthread_mutex_unlock(&early);
}

/* --- Opening -----------------------------------------------------------------------------------
 */

static uint64_t unix_ns(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static ms_trace_t *open_trace(void)
{
    const struct ms_options *options = ms_options();
    const struct ms_identity *self = &texts.self;
    ms_identity_read(&texts.self);
    ms_identity_fallback_dir(environ, getuid(), texts.fallback, sizeof(texts.fallback));
    const struct ms_trace_config config = {
        .output_dir = options->output_dir,
        .fallback_dir = texts.fallback,
        .limit_bytes = options->trace_limit_bytes,
        .process = {.run_id = self->run_id,
                    .host = self->host,
                    .command = self->command,
                    .program = self->program,
                    .options = ms_options_set_text(environ, texts.options, sizeof(texts.options)),
                    .torch_mode = ms_torch_mode_name(options->torch),
                    .memshim_version = memshim_version(),
                    .pid = getpid(),
                    .rank = self->ranks.rank,
                    .local_rank = self->ranks.local_rank,
                    .world_size = self->ranks.world_size,
                    .start_unix_ns = unix_ns()}};
    return ms_trace_open(&config, texts.note, sizeof(texts.note));
}

/* With `opening` held. What has to be said of it, "" for nothing: not said here, for a warning is a
 * note too. */
static const char *open_once(void)
{
    if (open_tried || !ms_options()->trace) {
        return "";
    }
    open_tried = true;
    ms_trace_t *opened = open_trace();
    atomic_store_explicit(&trace, opened, memory_order_release);
    if (opened != NULL) {
        hand_over_early(opened);
    }
    return texts.note;
}

static void say_device(int device, const char *name, uint64_t total_bytes, uint64_t cap_bytes)
{
    char total[24], cap[24];
    const ms_trace_t *open = ms_session_trace();
    ms_say("version %s, device %d (%s, %s), cap %s%s%s", memshim_version(), device, name,
           ms_bytes_text(total_bytes, total, sizeof(total)),
           ms_bytes_text(cap_bytes, cap, sizeof(cap)), open != NULL ? "; trace in " : "; no trace",
           open != NULL ? ms_trace_dir(open) : "");
}

void ms_session_device(int device, const char *name, const uint8_t *uuid, uint64_t total_bytes,
                       uint64_t cap_bytes)
{
    if (device < 0 || device >= MS_DEVICES_MAX) {
        return;
    }
    ms_sites_prepare();
    pthread_mutex_lock(&opening);
    bool first = !device_noted[device];
    device_noted[device] = true;
    const char *note = open_once();
    ms_trace_t *open = ms_session_trace();
    if (first && open != NULL) {
        ms_trace_device(open, (uint8_t)device, name, uuid, total_bytes, cap_bytes);
    }
    pthread_mutex_unlock(&opening);
    if (note[0] != '\0') {
        ms_log(MS_LOG_WARN, "%s", note);
    }
    if (first) {
        say_device(device, name, total_bytes, cap_bytes);
        ms_status_begin();
    }
}

/* --- Out of memory, and the end ----------------------------------------------------------------
 */

/* A call that the driver refused is often asked again, after PyTorch has given its cache back: what
 * PyTorch raises in the end is what its user must know. */
void ms_session_oom(int device, const struct ms_oom_state *state)
{
    static atomic_flag said[2] = {ATOMIC_FLAG_INIT, ATOMIC_FLAG_INIT};
    char sentence[1024];
    uint64_t short_bytes;
    bool from_torch = state->source == MS_OOM_TORCH;
    if (!from_torch) {
        ms_stats_note_refusal(device);
    }
    ms_trace_t *open = ms_session_trace();
    if (open != NULL) {
        ms_trace_oom(open, (uint8_t)device, state);
    }
    (void)ms_verdict_decide(state, &short_bytes, sentence, sizeof(sentence));
    bool news = from_torch || !ms_torch_reports();
    bool warn = news && !atomic_flag_test_and_set(&said[from_torch ? 1 : 0]);
    ms_log(warn ? MS_LOG_WARN : MS_LOG_INFO, "device %d: %s", device, sentence);
}

/* The folder of a trace, and that of its run above it. */
static void say_end(const char *dir, const char *why)
{
    const char *slash = strrchr(dir, '/');
    const int run = slash != NULL ? (int)(slash - dir) : 0;
    if (why[0] == '\0') {
        ms_say("report: %s/report.txt (all processes of the run: memshim report %.*s)", dir, run,
               dir);
    } else {
        ms_say("no report was written (%s); make it with: memshim report %.*s", why, run, dir);
    }
}

/* A process ends once: none of it need be on a stack. */
static struct {
    char dir[PATH_MAX], why[PATH_MAX + 256];
    ucontext_t before, report;
} ending;

static void write_report(void)
{
    if (ms_report_write(ending.dir, ending.why, sizeof(ending.why)) == 0) {
        ending.why[0] = '\0';
    }
}

/* The thread that ends the process may have little stack: the report gets one of its own. No thread
 * of its own, which would take memory from the heap. */
static void write_report_apart(void)
{
    void *stack = ms_pages_map(REPORT_STACK_BYTES);
    if (stack == NULL || getcontext(&ending.report) != 0) {
        (void)snprintf(ending.why, sizeof(ending.why), "out of memory");
        return;
    }
    ending.report.uc_stack = (stack_t){.ss_sp = stack, .ss_size = REPORT_STACK_BYTES};
    ending.report.uc_link = &ending.before;
    makecontext(&ending.report, write_report, 0);
    (void)swapcontext(&ending.before, &ending.report);
    ms_pages_unmap(stack, REPORT_STACK_BYTES);
}

void ms_session_end(int status)
{
    ms_trace_t *open = ms_session_trace();
    if (open == NULL) {
        return;
    }
    (void)snprintf(ending.dir, sizeof(ending.dir), "%s", ms_trace_dir(open));
    ms_trace_close(open, true, status);
    if (syscall(SYS_gettid) == getpid()) {
        write_report();
    } else {
        write_report_apart();
    }
    say_end(ending.dir, ending.why);
}

void ms_session_left(void)
{
    ms_trace_t *open = ms_session_trace();
    if (open != NULL) {
        say_end(ms_trace_dir(open), "the program ended inside a call, in a signal's handler");
    }
}

/* --- Fork --------------------------------------------------------------------------------------
 */

void ms_session_fork_prepare(void)
{
    pthread_mutex_lock(&opening);
    pthread_mutex_lock(&early);
}

void ms_session_fork_parent(void)
{
    pthread_mutex_unlock(&early);
    pthread_mutex_unlock(&opening);
}

void ms_session_fork_child(void)
{
    ms_trace_t *parents = atomic_exchange(&trace, NULL);
    if (parents != NULL) {
        ms_trace_abandon(parents);
    }
    pthread_mutex_unlock(&early);
    pthread_mutex_unlock(&opening);
}
