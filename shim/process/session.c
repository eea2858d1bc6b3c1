/* SPDX-License-Identifier: Apache-2.0 */
/* The trace of this process, and the lines at its first use of a device and at its end. */
#include "shim/process/session.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/clock.h"
#include "allocator/base/locks/lock.h"
#include "allocator/base/units.h"
#include "report/write/attempt.h"
#include "shim/process/hot.h"
#include "shim/process/log.h"
#include "shim/process/report_process.h"
#include "shim/tables/identity.h"
#include "shim/tables/options.h"

#define EARLY_BYTES 4096 /* for notes and versions from before the trace */
#define VERSIONS    4

MS_HOT_DATA static _Atomic(ms_trace_t *) trace;
static bool open_tried MS_GUARDED_BY(*MS_LOCK(OPENING));
static bool device_noted[MS_DEVICES_MAX] MS_GUARDED_BY(*MS_LOCK(OPENING));

/* Used while the trace is opened: too large for a small thread's stack. */
static struct {
    struct ms_identity self;
    char fallback[PATH_MAX], options[4096], note[2 * PATH_MAX];
} texts;

/* Recorded before there was a trace. */
static char early_notes[EARLY_BYTES] MS_GUARDED_BY(*MS_LOCK(EARLY)); /* each followed by '\n' */
static struct early_version {
    char what[16], version[64];
} early_versions[VERSIONS]; /* guarded by EARLY */

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
    ms_lock_acquire(MS_LOCK(EARLY));
    size_t used = strlen(early_notes);
    if (used + strlen(text) + 2 <= sizeof(early_notes)) {
        (void)snprintf(early_notes + used, sizeof(early_notes) - used, "%s\n", text);
    }
    ms_lock_release(MS_LOCK(EARLY));
}

void ms_session_version(const char *what, const char *version)
{
    ms_trace_t *open = ms_session_trace();
    if (open != NULL) {
        ms_trace_version(open, what, version);
        return;
    }
    ms_lock_acquire(MS_LOCK(EARLY));
    for (int i = 0; i < VERSIONS; i++) {
        if (early_versions[i].what[0] == '\0') {
            strncpy(early_versions[i].what, what, sizeof(early_versions[i].what) - 1);
            strncpy(early_versions[i].version, version, sizeof(early_versions[i].version) - 1);
            break;
        }
    }
    ms_lock_release(MS_LOCK(EARLY));
}

static void hand_over_early(ms_trace_t *open)
{
    ms_lock_acquire(MS_LOCK(EARLY));
    for (int i = 0; i < VERSIONS && early_versions[i].what[0] != '\0'; i++) {
        ms_trace_version(open, early_versions[i].what, early_versions[i].version);
    }
    for (char *line = early_notes; *line != '\0';) {
        char *end = strchr(line, '\n');
        *end = '\0';
        ms_trace_note(open, line);
        line = end + 1;
    }
    ms_lock_release(MS_LOCK(EARLY));
}

/* --- Opening -----------------------------------------------------------------------------------
 */

/* Finds out to which attempt of its run this process belongs, because torchrun's restart count is
 * per host. The launcher's own children are session leaders. */
static void settle_attempt(const struct ms_trace_process *process)
{
    int32_t restarts = 0;
    const char *run = ms_identity_run(environ, ms_options()->run_id, &restarts);
    if (ms_environment(environ, "TORCHELASTIC_RUN_ID") != NULL) {
        restarts = ms_attempt_find(ms_options()->output_dir, run, process, restarts,
                                   getsid(0) == getpid());
        ms_identity_name_run(run, restarts, texts.self.run_id, sizeof texts.self.run_id);
    }
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
                    .memshim_version = MEMSHIM_VERSION,
                    .pid = getpid(),
                    .rank = self->ranks.rank,
                    .local_rank = self->ranks.local_rank,
                    .world_size = self->ranks.world_size,
                    .supervisor_pid = ms_report_process_supervisor(),
                    .start_unix_ns = ms_clock_unix_ns()}};
    settle_attempt(&config.process);
    return ms_trace_open(&config, texts.note, sizeof(texts.note));
}

/* The caller holds OPENING. Returns a warning, or "". It is not logged here, because a warning is a
 * note in the trace, too. */
static const char *open_once(void) MS_REQUIRES(*MS_LOCK(OPENING))
{
    if (open_tried || !ms_options()->trace) {
        return "";
    }
    open_tried = true;
    ms_trace_t *opened = open_trace();
    atomic_store_explicit(&trace, opened, memory_order_release);
    if (opened != NULL) {
        ms_report_process_prepare();
        hand_over_early(opened);
    }
    return texts.note;
}

static void say_device(int device, const char *name, uint64_t total_bytes, uint64_t cap_bytes)
{
    char total[24], cap[24];
    const ms_trace_t *open = ms_session_trace();
    ms_say("version %s, device %d (%s, %s), cap %s%s%s", MEMSHIM_VERSION, device, name,
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
    ms_lock_acquire(MS_LOCK(OPENING));
    bool first = !device_noted[device];
    device_noted[device] = true;
    const char *note = open_once();
    ms_trace_t *open = ms_session_trace();
    if (first && open != NULL) {
        ms_trace_device(open, (uint8_t)device, name, uuid, total_bytes, cap_bytes);
    }
    ms_lock_release(MS_LOCK(OPENING));
    if (note[0] != '\0') {
        ms_log(MS_LOG_WARN, "%s", note);
    }
    if (first) {
        say_device(device, name, total_bytes, cap_bytes);
    }
}

/* --- The end ----------------------------------------------------------------
 */

/* Length of the path up to the run's folder, which contains that of the trace. */
static int run_length(const char *dir)
{
    const char *slash = strrchr(dir, '/');
    return slash != NULL ? (int)(slash - dir) : 0;
}

static void say_no_report(const char *dir, const char *why)
{
    ms_say("no report was written (%s); make it with: memshim report %.*s", why, run_length(dir),
           dir);
}

/* Static, not on the stack: a process ends only once. */
static struct {
    char dir[PATH_MAX], why[PATH_MAX + 512];
} ending;

static void say_end(enum ms_reported reported)
{
    const char *dir = ending.dir;
    switch (reported) {
    case MS_REPORTED:
        ms_say(
            "report: %s/report.html, and report.txt beside it (all processes of the run: memshim "
            "report %.*s)",
            dir, run_length(dir), dir);
        break;
    case MS_REPORT_GOES_ON:
        ms_say("report: %s/report.txt is being made by another process, which may take a while "
               "(all processes of the run: memshim report %.*s)",
               dir, run_length(dir), dir);
        break;
    case MS_REPORT_LATER:
        ms_say("trace in %s; memshim run makes the reports", dir);
        break;
    case MS_REPORT_FAILED:
        say_no_report(dir, ending.why);
    }
}

void ms_session_end(int status)
{
    ms_trace_t *open = ms_session_trace();
    if (open == NULL) {
        return;
    }
    (void)snprintf(ending.dir, sizeof(ending.dir), "%s", ms_trace_dir(open));
    const int error = ms_trace_close(open, true, status);
    if (error != 0) {
        char reason[128];
        ms_log(MS_LOG_WARN, "the trace in %s ends early: %s; no report shows what came after that",
               ending.dir,
               error == ESTALE ? "its file was truncated"
                               : strerror_r(error, reason, sizeof(reason)));
    }
    say_end(ms_report_process(ending.dir, ms_options()->report_wait_ns, ending.why,
                              sizeof(ending.why)));
}

void ms_session_leave(int status)
{
    ms_trace_t *open = ms_session_trace();
    if (open != NULL) {
        ms_trace_leave(open, status);
    }
}

void ms_session_left(int status)
{
    ms_trace_t *open = ms_session_trace();
    if (open != NULL) {
        ms_trace_leave(open, status);
        say_no_report(ms_trace_dir(open), "the program ended inside a call, in a signal's handler");
    }
}

/* --- Fork --------------------------------------------------------------------------------------
 */

void ms_session_fork_child(void)
{
    ms_trace_t *parents = atomic_exchange(&trace, NULL);
    if (parents != NULL) {
        ms_trace_abandon(parents);
    }
}
