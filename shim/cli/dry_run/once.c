/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the command once, and watches it. */
#include "shim/cli/dry_run/once.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/clock.h"
#include "allocator/base/units.h"
#include "shim/cli/arguments/parse.h"
#include "shim/cli/dry_run/complaint.h"
#include "shim/cli/dry_run/ground.h"
#include "shim/cli/dry_run/host.h"
#include "shim/cli/dry_run/shared.h"
#include "shim/cli/launch/overlay.h"
#include "shim/cli/launch/preload.h"
#include "shim/cli/launch/supervise.h"

#define LOOK_EVERY_MS 100
#define LOOK_PART     1    /* at most one part in this many and one of the time goes into checks */
#define STATELESS     3    /* after this many steps no more optimizer state is expected */
#define CALM_TURNS    128  /* of a loop without a backward pass: so many more, and no larger peak */
#define GROWN_PART    1024 /* a peak that grew by less than this part of it has not grown */
#define PATIENCE_NS   (5 * MS_NS_PER_S)
#define MORE_PART     40 /* of the host's limit: a part that the machine has kept bears it */
#define AMPLE_BYTES   (UINT64_C(1) << 40)

/* Makes it, and those above it. */
static bool make_folder(const char *path)
{
    char part[PATH_MAX];

    for (size_t i = 1; i < sizeof(part) && (path[i - 1] || i == 1); i++) {
        if (path[i] == '/' || path[i] == '\0') {
            memcpy(part, path, i);
            part[i] = '\0';
            if (mkdir(part, 0777) != 0 && errno != EEXIST) {
                return false;
            }
        }
        if (path[i] == '\0') {
            return true;
        }
    }
    return false;
}

/* ---- while it runs ---- */

struct command_watch {
    const char *output;
    uint64_t wanted_steps; /* 0: until state was made, and one step more */
    bool wants_validation;
    uint64_t next_look_ns, asked_ns; /* asked_ns: when it was asked to end; 0: not yet */
    struct ms_dry_host host;
    bool host_is_full;    /* that is why it was asked */
    uint64_t asked_bytes; /* of the host that it had then */
    uint64_t begun_ns;
    uint64_t first_steps, first_step_ns; /* steps at the first check that saw any */
    uint64_t grown_bytes, grown_steps; /* the largest peak, and the steps when it was first seen */
    bool shown;
    /* When somebody asked for the end, and how often; the command was told. */
    uint64_t interrupted_ns;
    unsigned interruptions;
};

static void note_growth(struct command_watch *watch, const struct ms_dry_progress *progress)
{
    const uint64_t bytes = progress->peak_live_bytes;

    if (bytes > watch->grown_bytes + watch->grown_bytes / GROWN_PART) {
        watch->grown_bytes = bytes;
        watch->grown_steps = progress->least_steps;
    }
}

/* The number of steps after which everything was seen, as far as is known yet. Sampling and
 * inference have no moment from which on all turns are alike: a cache grows by the token, and what
 * decodes comes last. So the peak must have stood still for as long again as it grew. */
static uint64_t steps_wanted(const struct command_watch *watch,
                             const struct ms_dry_progress *progress)
{
    if (watch->wanted_steps > 0) {
        return watch->wanted_steps;
    }
    if (progress->least_steps > 0 && !progress->trains && !progress->all_have_state) {
        return 2 * watch->grown_steps + CALM_TURNS;
    }
    return progress->all_have_state || progress->least_steps == 0 ? 2 : STATELESS;
}

static bool has_seen_all(const struct command_watch *watch, const struct ms_dry_progress *progress)
{
    if (progress->processes == 0) {
        return false;
    }
    return progress->least_steps > 0 && progress->least_steps >= steps_wanted(watch, progress) &&
           (progress->all_stepped_twice || watch->wanted_steps > 0) &&
           (progress->validates || !watch->wants_validation);
}

/* Estimated from the steps so far; 0: unknown yet. */
static uint64_t left_ns(struct command_watch *watch, const struct ms_dry_progress *progress,
                        uint64_t now_ns)
{
    const uint64_t steps = progress->least_steps, wanted = steps_wanted(watch, progress);

    if (watch->first_step_ns == 0 && steps > 0) {
        watch->first_steps = steps;
        watch->first_step_ns = now_ns;
    }
    return steps > watch->first_steps && wanted > steps
               ? (now_ns - watch->first_step_ns) / (steps - watch->first_steps) * (wanted - steps)
               : 0;
}

/* Prints the phase, the step, and the time that is left or has passed. */
static void show(struct command_watch *watch, const struct ms_dry_progress *progress)
{
    const uint64_t now_ns = ms_clock_ns(), left = left_ns(watch, progress, now_ns);

    if (!isatty(STDERR_FILENO)) {
        return;
    }
    (void)fputs("\r\033[Kdry run: ", stderr);
    if (progress->processes == 0) {
        (void)fputs("no device is used yet", stderr);
    } else if (progress->least_steps == 0) {
        (void)fprintf(stderr, "before the first step, %s at most",
                      MS_BYTES(progress->peak_live_bytes));
    } else {
        (void)fprintf(stderr, "step %s of %s, %s at most", MS_COUNT(progress->least_steps),
                      MS_COUNT(steps_wanted(watch, progress)), MS_BYTES(progress->peak_live_bytes));
        (void)fputs(watch->wants_validation && !progress->validates ? ", no validation yet" : "",
                    stderr);
    }
    (void)fprintf(stderr, left > 0 ? ", about %s left" : ", for %s",
                  MS_DURATION(left > 0 ? left : now_ns - watch->begun_ns));
    (void)fflush(stderr);
    watch->shown = true;
}

/* Who was asked to end for want of memory, and takes more instead, is not waited for. */
static bool is_over(struct command_watch *watch, uint64_t now_ns)
{
    const uint64_t more_bytes = watch->host.limit_bytes / MORE_PART;

    if (watch->host_is_full) {
        (void)ms_dry_host_look(&watch->host);
    }
    return now_ns - watch->asked_ns > PATIENCE_NS ||
           (watch->host_is_full && watch->host.most_bytes > watch->asked_bytes + more_bytes);
}

/* Other processes may be what left the machine without memory. */
static void complain_of_host(const struct ms_dry_host *host)
{
    if (host->most_bytes > host->limit_bytes && host->written_bytes > 0) {
        complain("the command holds %s of this machine's memory, %s of it in files that it wrote, "
                 "and may hold %s: it is ended (--host-memory)",
                 MS_BYTES(host->most_bytes), MS_BYTES(host->written_bytes),
                 MS_BYTES(host->limit_bytes));
    } else if (host->most_bytes > host->limit_bytes) {
        complain("the command holds %s of this machine's memory, and may hold %s: it is ended "
                 "(--host-memory)",
                 MS_BYTES(host->most_bytes), MS_BYTES(host->limit_bytes));
    } else {
        complain("this machine has next to no memory left, and the command holds %s of it: it is "
                 "ended",
                 MS_BYTES(host->most_bytes));
    }
}

/* Not how many steps: the command makes more of them until it has ended, and the answer counts
 * all. */
static void say_stopped(const struct command_watch *watch, const struct ms_dry_progress *progress)
{
    if (watch->wants_validation) {
        complain("a validation and the steps before it were seen: the command is stopped");
    } else if (watch->wanted_steps > 0) {
        complain("--steps %s: as many were seen, and the command is stopped",
                 MS_COUNT(watch->wanted_steps));
    } else if (progress->all_have_state) {
        complain("the optimizer's state and a step after it were seen: the command is stopped");
    } else if (progress->trains) {
        complain("steps were seen, in which no optimizer made state: the command is stopped");
    } else {
        complain("a loop was seen, whose peak has stood still: the command is stopped");
    }
}

static int look(void *ctx)
{
    struct command_watch *watch = ctx;
    struct ms_dry_progress progress;
    const uint64_t now_ns = ms_clock_ns();

    if (watch->interruptions > 0) {
        return watch->interruptions > 1 || now_ns - watch->interrupted_ns > PATIENCE_NS ? SIGKILL
                                                                                        : 0;
    }
    if (watch->asked_ns > 0) {
        return is_over(watch, now_ns) ? SIGKILL : 0;
    }
    if (now_ns < watch->next_look_ns) {
        return 0;
    }
    if (!ms_dry_host_look(&watch->host)) {
        watch->asked_ns = now_ns;
        watch->host_is_full = true;
        watch->asked_bytes = watch->host.most_bytes;
        complain_of_host(&watch->host);
        return SIGTERM;
    }
    ms_dry_progress(watch->output, &progress);
    watch->next_look_ns = ms_clock_ns() + (ms_clock_ns() - now_ns) * LOOK_PART;
    note_growth(watch, &progress);
    show(watch, &progress);
    if (!has_seen_all(watch, &progress)) {
        return 0;
    }
    watch->asked_ns = ms_clock_ns();
    say_stopped(watch, &progress);
    return SIGTERM;
}

/* Nothing that the command still does is kept, except for its trace, which it need not end. So one
 * that does not listen is not waited for. */
static void be_asked(void *ctx)
{
    struct command_watch *watch = ctx;

    if (watch->interruptions++ == 0) {
        watch->interrupted_ns = ms_clock_ns();
        complain("interrupted: the command has %s to end; the same signal again ends it at once",
                 MS_DURATION(PATIENCE_NS));
    }
}

/* ---- one run ---- */

static int enter(void *ctx)
{
    const struct command_watch *watch = ctx;
    char where[PATH_MAX];
    int error;

    if (!watch->host.scratch) {
        return 0;
    }
    error = ms_overlay_enter(watch->host.scratch, watch->host.limit_bytes, watch->output, where,
                             sizeof(where));
    if (error != 0) {
        complain("no private layer could be put over %s (%s)", where, strerror(error));
    }
    return error;
}

/* What the command writes goes into a layer of its own, and vanishes with it. False, after an error
 * message, if that is impossible and the user has not allowed real writes. */
static bool shield(const struct ms_dry_call *call, const char *shared, const char *output,
                   char *scratch)
{
    char where[PATH_MAX];
    int error;

    scratch[0] = '\0';
    if (call->allow_writes) {
        return true;
    }
    if (snprintf(scratch, PATH_MAX, "%s/layer", shared) >= PATH_MAX || mkdir(scratch, 0700) != 0 ||
        !make_folder(output)) {
        complain("%s cannot be made: %s", output, strerror(errno));
        return false;
    }
    error = ms_overlay_try(scratch, output, where, sizeof(where));
    if (error != 0) {
        complain("no private layer can be put over %s (%s). What the command writes would be real, "
                 "and could put zeros over a checkpoint. --allow-writes runs it all the same",
                 where[0] ? where : "this machine's folders", strerror(error));
        (void)rmdir(scratch);
    }
    return error == 0;
}

/* The command's own output goes to stderr, because stdout has only the answer. -1 and an errno if
 * the command cannot be run. */
static int run_command(char *const *argv, struct command_watch *watch, int *error)
{
    const struct ms_supervise_watch watched = {LOOK_EVERY_MS, look, enter, be_asked, watch};
    const int output = dup(STDOUT_FILENO);
    int status;

    (void)fflush(stdout);
    (void)dup2(STDERR_FILENO, STDOUT_FILENO);
    status = ms_supervise_watched(argv, environ, &watched, error);
    (void)dup2(output, STDOUT_FILENO);
    (void)close(output);
    if (watch->shown) {
        (void)fputs("\r\033[K", stderr);
    }
    return status;
}

static bool is_interruption(int signal)
{
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
}

static void judge_end(const struct command_watch *watch, int wait_status,
                      struct ms_dry_answer *answer)
{
    const bool signaled = WIFSIGNALED(wait_status);

    if (watch->asked_ns > 0) {
        answer->end = watch->host_is_full ? MS_DRY_HOST_FULL : MS_DRY_STOPPED;
        return;
    }
    answer->status = signaled ? -WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
    if (watch->interruptions > 0 ||
        is_interruption(signaled ? WTERMSIG(wait_status) : answer->status - 128)) {
        /* Who signals a whole group may reach the command before us. 128 and the signal's number:
         * as shells and handlers report it. */
        answer->end = MS_DRY_INTERRUPTED;
    } else {
        answer->end = answer->status == 0 ? MS_DRY_ENDED : MS_DRY_FAILED;
    }
}

/* The largest resident set of all children that have ended. Those that ran before the command
 * count, too, but are small beside it. */
static uint64_t most_of_a_process(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_CHILDREN, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

int ms_dry_once(const struct ms_dry_call *call, char *const *argv, const char *output,
                struct ms_dry_answer *answer)
{
    char shared[PATH_MAX], scratch[PATH_MAX];
    struct command_watch watch = {
        .output = output,
        .wanted_steps = call->steps,
        .wants_validation = call->validation,
        .begun_ns = ms_clock_ns(),
        .host = {.limit_bytes = call->host_bytes > 0 ? call->host_bytes : ms_dry_host_room(),
                 .layer = -1}};
    int error = 0, wait_status;

    if (!ms_dry_shared_make(shared)) {
        return MS_CLI_WRONG_CALL;
    }
    if (!ms_dry_ground_set(&call->card, answer->ample ? AMPLE_BYTES : call->card.total_bytes,
                           answer->devices, call->random, answer->is_late, shared)) {
        ms_dry_shared_remove(shared);
        return MS_CLI_WRONG_CALL;
    }
    if (!shield(call, shared, output, scratch)) {
        ms_dry_shared_remove(shared);
        return MS_CLI_WRONG_CALL;
    }
    watch.host.scratch = scratch[0] ? scratch : NULL;
    wait_status = run_command(argv, &watch, &error);
    ms_dry_host_end(&watch.host);
    if (scratch[0]) {
        (void)rmdir(scratch);
    }
    ms_dry_shared_asked(shared, &answer->asked);
    ms_dry_shared_cudnn(shared, &answer->cudnn);
    ms_dry_shared_remove(shared);
    if (wait_status < 0) {
        return ms_cannot_run("dry-run", argv[0], error);
    }
    judge_end(&watch, wait_status, answer);
    answer->host_bytes = most_of_a_process();
    /* The process with most may have had it between two checks, and has pages of files, too. */
    answer->host_all_bytes =
        watch.host.most_bytes > answer->host_bytes ? watch.host.most_bytes : answer->host_bytes;
    answer->host_limit_bytes = watch.host.limit_bytes;
    answer->host_written_bytes = watch.host.written_bytes;
    answer->layer_full_bytes = watch.host.full_bytes;
    return -1;
}
