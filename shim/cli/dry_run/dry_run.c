/* SPDX-License-Identifier: Apache-2.0 */
/* memshim dry-run: what a command will need, from a run of it on the simulated GPU, which computes
 * nothing. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "allocator/base/clock.h"
#include "allocator/base/units.h"
#include "shim/cli/arguments/cli.h"
#include "shim/cli/arguments/output.h"
#include "shim/cli/arguments/parse.h"
#include "shim/cli/arguments/values.h"
#include "shim/cli/dry_run/around.h"
#include "shim/cli/dry_run/batches.h"
#include "shim/cli/dry_run/card.h"
#include "shim/cli/dry_run/complaint.h"
#include "shim/cli/dry_run/ground.h"
#include "shim/cli/dry_run/read.h"
#include "shim/cli/dry_run/shared.h"
#include "shim/cli/launch/finish.h"
#include "shim/cli/launch/interrupt.h"
#include "shim/cli/launch/latest.h"
#include "shim/cli/launch/overlay.h"
#include "shim/cli/launch/preload.h"
#include "shim/cli/launch/supervise.h"
#include "shim/tables/identity.h"

#define MOST_DEVICES  16
#define MOST_STEPS    1000000
#define MOST_RANKS    65536
#define OF_A_MACHINE  8 /* devices, where nobody says */
#define LOOK_EVERY_MS 100
#define LOOK_PART     1 /* of the time, at most one part in so many and one goes to looking */
#define STATELESS     3 /* steps after which no state is expected any more */
#define PATIENCE_NS   (5 * MS_NS_PER_S)
#define AMPLE_BYTES   (UINT64_C(1) << 40)
#define LONG_NS       (60 * MS_NS_PER_S)

struct call {
    struct ms_card card;
    const char *gpu; /* null: not given */
    bool json, allow_writes;
    bool random; /* values that no kernel computed are drawn */
    enum { SCHEDULES_AUTO, SCHEDULES_ONE, SCHEDULES_BOTH } schedules;
    uint64_t devices, steps; /* 0: not given */
    struct ms_dry_around around;
    struct ms_dry_plan plan;
    bool find_batch;
};

static bool take_schedules(const char *value, struct call *call)
{
    static const char *const names[] = {"auto", "one", "both"};

    for (int i = 0; i < (int)(sizeof(names) / sizeof(*names)); i++) {
        if (strcmp(value, names[i]) == 0) {
            call->schedules = i;
            return true;
        }
    }
    return false;
}

static bool take_option(void *ctx, const struct ms_cli_option *option, const char *value)
{
    struct call *call = ctx;

    switch ((int)option->id) {
    case MS_CLI_DRY_RUN_GPU:
        call->gpu = value;
        return true;
    case MS_CLI_DRY_RUN_GPUS:
        return ms_cli_take_count(value, MOST_DEVICES, &call->devices) && call->devices > 0;
    case MS_CLI_DRY_RUN_STEPS:
        return ms_cli_take_count(value, MOST_STEPS, &call->steps) && call->steps > 0;
    case MS_CLI_DRY_RUN_BATCH_ENV:
        return ms_dry_plan_take(value, true, &call->plan);
    case MS_CLI_DRY_RUN_BATCH_ARG:
        return ms_dry_plan_take(value, false, &call->plan);
    case MS_CLI_DRY_RUN_FIND_BATCH:
        call->find_batch = true;
        return true;
    case MS_CLI_DRY_RUN_VALUES:
        call->random = strcmp(value, "random") == 0;
        return call->random || strcmp(value, "zeros") == 0;
    case MS_CLI_DRY_RUN_SCHEDULES:
        return take_schedules(value, call);
    case MS_CLI_DRY_RUN_RANKS_OF:
        return ms_cli_take_count(value, MOST_RANKS, &call->around.world) && call->around.world > 1;
    case MS_CLI_DRY_RUN_ONLY:
        call->around.only = true;
        return strcmp(value, "0") == 0;
    case MS_CLI_DRY_RUN_OFFLINE_WEIGHTS:
        call->around.weights = value;
        return true;
    case MS_CLI_DRY_RUN_DATA_STUB:
        call->around.data_stub = value;
        return true;
    case MS_CLI_DRY_RUN_ALLOW_WRITES:
        call->allow_writes = true;
        return true;
    default:
        call->json = true;
        return true;
    }
}

/* -1 where there is a command to run, else the exit status. */
static int read_arguments(int argc, char **argv, struct call *call, int *command)
{
    const struct ms_cli_reader reader = {.option = take_option, .rest = command};
    const int status = ms_cli_parse(MS_CLI_DRY_RUN, argc, argv, &reader, call);

    return status < 0 && *command == argc
               ? ms_cli_wrong(MS_CLI_DRY_RUN, "there is no command to run: memshim dry-run "
                                              "[OPTION]... -- COMMAND...")
               : status;
}

/* The ranks that a launcher's own words ask for on this machine; 0: they do not say. */
static uint64_t ranks_of(char *const *command)
{
    static const char *const names[] = {"--nproc-per-node", "--nproc_per_node", "--num_processes"};
    uint64_t ranks = 0;

    for (; *command; command++) {
        for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
            const size_t length = strlen(names[i]);

            if (strncmp(*command, names[i], length) != 0) {
                continue;
            }
            if ((*command)[length] == '=') {
                (void)ms_cli_take_count(*command + length + 1, MOST_DEVICES, &ranks);
            } else if ((*command)[length] == '\0' && command[1]) {
                (void)ms_cli_take_count(command[1], MOST_DEVICES, &ranks);
            }
        }
    }
    return ranks;
}

/* With those above it. */
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

struct watch {
    const char *output, *scratch;    /* scratch: null: what the command writes is real */
    uint64_t wanted_steps;           /* 0: until state was made, and one step more */
    uint64_t next_look_ns, asked_ns; /* asked_ns: to end; 0: not yet */
    bool shown;
};

static bool has_seen_all(const struct watch *watch, const struct ms_dry_progress *progress)
{
    if (progress->processes == 0) {
        return false;
    }
    if (watch->wanted_steps > 0) {
        return progress->least_steps >= watch->wanted_steps;
    }
    return progress->least_steps >= (progress->all_have_state ? 2 : STATELESS);
}

static void show(struct watch *watch, const struct ms_dry_progress *progress)
{
    if (isatty(STDERR_FILENO) && progress->processes > 0) {
        (void)fprintf(stderr, "\rdry run: %s step%s, %s at most   ",
                      MS_COUNT(progress->least_steps), progress->least_steps == 1 ? "" : "s",
                      MS_BYTES(progress->peak_live_bytes));
        watch->shown = true;
    }
}

static int look(void *ctx)
{
    struct watch *watch = ctx;
    struct ms_dry_progress progress;
    const uint64_t now_ns = ms_clock_ns();

    if (watch->asked_ns > 0) {
        return now_ns - watch->asked_ns > PATIENCE_NS ? SIGKILL : 0;
    }
    if (now_ns < watch->next_look_ns) {
        return 0;
    }
    ms_dry_progress(watch->output, &progress);
    watch->next_look_ns = ms_clock_ns() + (ms_clock_ns() - now_ns) * LOOK_PART;
    show(watch, &progress);
    if (!has_seen_all(watch, &progress)) {
        return 0;
    }
    watch->asked_ns = ms_clock_ns();
    complain("%s step%s of the optimizer: all was seen; the command is stopped",
             MS_COUNT(progress.least_steps), progress.least_steps == 1 ? "" : "s");
    return SIGTERM;
}

/* ---- one run ---- */

static int enter(void *ctx)
{
    const struct watch *watch = ctx;
    char where[PATH_MAX];
    int error;

    if (!watch->scratch) {
        return 0;
    }
    error = ms_overlay_enter(watch->scratch, watch->output, where, sizeof(where));
    if (error != 0) {
        complain("no private layer could be put over %s (%s)", where, strerror(error));
    }
    return error;
}

/* What the command writes goes into a layer of its own, and is gone with it. False, and it has been
 * said why, where that cannot be and has not been allowed otherwise. */
static bool shield(const struct call *call, const char *shared, const char *output, char *scratch)
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
        complain("no private layer can be put over %s (%s), so that what the command writes would "
                 "be real, zeros over a checkpoint among it; --allow-writes runs it all the same",
                 where[0] ? where : "this machine's folders", strerror(error));
        (void)rmdir(scratch);
    }
    return error == 0;
}

/* The command's own words go where errors go: the standard output has the answer, and nothing else.
 * -1 and an errno where the command cannot be run. */
static int run_command(char *const *argv, struct watch *watch, int *error)
{
    const struct ms_supervise_watch watched = {LOOK_EVERY_MS, look, enter, watch};
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

static void judge_end(const struct watch *watch, int wait_status, struct ms_dry_answer *answer)
{
    if (watch->asked_ns > 0) {
        answer->end = MS_DRY_STOPPED;
    } else if (WIFSIGNALED(wait_status)) {
        answer->status = -WTERMSIG(wait_status);
        answer->end = WTERMSIG(wait_status) == SIGINT ? MS_DRY_INTERRUPTED : MS_DRY_FAILED;
    } else {
        answer->status = WEXITSTATUS(wait_status);
        answer->end = answer->status == 0     ? MS_DRY_ENDED
                      : answer->status == 130 ? MS_DRY_INTERRUPTED
                                              : MS_DRY_FAILED;
    }
}

/* Resident at its highest, of all that have ended: also of what was run before the command, which
 * is small beside it. */
static uint64_t most_of_a_process(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_CHILDREN, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

/* -1 where it ran, else the exit status. */
static int run(const struct call *call, char *const *argv, const char *output,
               struct ms_dry_answer *answer)
{
    char shared[PATH_MAX], scratch[PATH_MAX];
    struct watch watch = {.output = output, .wanted_steps = call->steps};
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
    watch.scratch = scratch[0] ? scratch : NULL;
    wait_status = run_command(argv, &watch, &error);
    if (scratch[0]) {
        (void)rmdir(scratch);
    }
    ms_dry_shared_asked(shared, &answer->asked_device, answer->asked_host,
                        sizeof(answer->asked_host));
    ms_dry_shared_cudnn(shared, &answer->cudnn_work_bytes, &answer->cudnn_reserve_bytes);
    ms_dry_shared_remove(shared);
    if (wait_status < 0) {
        return ms_cannot_run("dry-run", argv[0], error);
    }
    judge_end(&watch, wait_status, answer);
    answer->host_bytes = most_of_a_process();
    return -1;
}

/* ---- the whole ---- */

static bool any_died_of_oom(const struct ms_dry_answer *answer)
{
    for (size_t i = 0; i < ms_dry_rank_count(answer); i++) {
        if (ms_dry_rank_at(answer, i)->died_of_oom) {
            return true;
        }
    }
    return false;
}

/* Its traces have a folder of their own below the usual one, so that they are told from others'. */
static bool name_folder(time_t start, char *folder)
{
    char id[64];

    ms_identity_start_id(start, getpid(), id, sizeof(id));
    return snprintf(folder, PATH_MAX, "%s/dry-run-%s", ms_cli_output_folder(), id) < PATH_MAX;
}

static void choose_cards(const struct call *call, struct ms_dry_answer *answer)
{
    answer->card = &call->card;
    answer->version = MEMSHIM_VERSION;
    answer->random = call->random;
    answer->cards[answer->card_count++] = call->card;
    for (size_t i = 0; i < ms_card_count() && answer->card_count < MS_DRY_CARDS; i++) {
        if (strcmp(ms_card_at(i)->id, call->card.id) != 0) {
            answer->cards[answer->card_count++] = *ms_card_at(i);
        }
    }
}

/* What a user has not chosen: nothing is said but by this command, nothing is moved to the host,
 * and nobody is told of the run. */
static bool set_environment(void)
{
    static const char *const settings[][2] = {
        {"MEMSHIM_SPILL", "off"},      {"MEMSHIM_TRACE", "on"},
        {"MEMSHIM_POOL", "on"},        {"MEMSHIM_FRACTION", "1"},
        {"MEMSHIM_WAIT_MS", "1000"},   {"WANDB_MODE", "disabled"},
        {"HF_HUB_OFFLINE", "1"},       {"HF_DATASETS_OFFLINE", "1"},
        {"TRANSFORMERS_OFFLINE", "1"}, {"COMET_MODE", "disabled"},
        {"NEPTUNE_MODE", "debug"},     {"MLFLOW_TRACKING_URI", "file:/tmp/memshim-dry-run"}};

    (void)unsetenv("MEMSHIM");
    (void)unsetenv("MEMSHIM_LIMIT");
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
        if (setenv(settings[i][0], settings[i][1], 1) != 0) {
            return false;
        }
    }
    return setenv("MEMSHIM_LOG", "off", 0) == 0;
}

static void read_traces(const char *output, struct ms_dry_answer *answer)
{
    char line[PATH_MAX + 128];

    (void)snprintf(line, sizeof(line),
                   "memshim dry-run: interrupted while it read the traces; memshim report %s says "
                   "where the memory was",
                   output);
    ms_interrupt_begin(line);
    ms_dry_read(output, answer);
    ms_interrupt_end();
}

/* -1 where it ran, else the exit status. base: the whole name of the folder of the first run. */
static int run_and_read(const struct call *call, char *const *argv, const char *base,
                        const char *suffix, char *output, struct ms_dry_answer *answer)
{
    const time_t start = time(NULL);
    int status;

    if (snprintf(output, PATH_MAX, "%s%s", base, suffix) >= PATH_MAX ||
        setenv("MEMSHIM_OUTPUT", output, 1) != 0) {
        return MS_CLI_WRONG_CALL;
    }
    status = run(call, argv, output, answer);
    if (status < 0) {
        read_traces(output, answer);
        ms_finish_runs(output, start, false);
    }
    return status;
}

/* Where the run took long, a second one is for who asks. */
static bool wants_late(const struct call *call, const struct ms_dry_answer *answer)
{
    if (answer->end > MS_DRY_ENDED || ms_dry_rank_count(answer) == 0) {
        return false;
    }
    return call->schedules == SCHEDULES_BOTH ||
           (call->schedules == SCHEDULES_AUTO && answer->elapsed_ns < LONG_NS);
}

/* The same with the other schedule; it is left out where that does not come as far. */
static void run_late(const struct call *call, char *const *argv, const char *base,
                     struct ms_dry_answer *late, struct ms_dry_answer *answer)
{
    char output[PATH_MAX];

    late->is_late = true;
    late->ample = answer->ample;
    choose_cards(call, late);
    complain("once more, with work that ends when it is waited for (--schedules one: not so)");
    if (run_and_read(call, argv, base, "-late", output, late) < 0 && late->end <= MS_DRY_ENDED &&
        ms_dry_rank_count(late) == ms_dry_rank_count(answer)) {
        answer->late = late;
    } else {
        complain("that did not come as far as the first run, and is left out");
    }
}

static int answer_command(const struct call *call, char *const *argv, const char *base)
{
    struct ms_dry_answer answer = {
        .devices = call->devices, .wanted_steps = call->steps, .world = call->around.world};
    struct ms_dry_answer late = answer;
    char output[PATH_MAX];
    const uint64_t start_ns = ms_clock_ns();
    struct ms_buffer out = {0};
    bool written;
    int status;

    choose_cards(call, &answer);
    status = run_and_read(call, argv, base, "", output, &answer);
    if (status < 0 && any_died_of_oom(&answer)) {
        ms_dry_answer_free(&answer);
        answer.ranks = (struct ms_buffer){0};
        answer.values = (struct ms_buffer){0};
        answer.ample = true;
        complain("it ran out of that card's memory; once more, with memory enough");
        status = run_and_read(call, argv, base, "-ample", output, &answer);
    }
    if (status >= 0) {
        return status;
    }
    answer.report = output;
    answer.elapsed_ns = ms_clock_ns() - start_ns;
    if (wants_late(call, &answer)) {
        run_late(call, argv, base, &late, &answer);
    }
    (call->json ? ms_dry_run_json : ms_dry_run_text)(&answer, &out);
    written = ms_cli_put(MS_CLI_DRY_RUN, &out, "-");
    ms_buffer_free(&out);
    status = written && ms_dry_rank_count(&answer) > 0 && answer.end <= MS_DRY_ENDED ? 0 : 1;
    ms_dry_answer_free(&answer);
    ms_dry_answer_free(&late);
    return status;
}

/* ---- several batches ---- */

struct measuring {
    const struct call *call;
    const char *base;
    int status; /* of the first run that could not be */
};

static bool measure(void *ctx, char *const *argv, const char *suffix, struct ms_dry_answer *answer)
{
    struct measuring *measuring = ctx;
    const struct call *call = measuring->call;
    char output[PATH_MAX];

    answer->devices = call->devices;
    answer->wanted_steps = call->steps;
    answer->ample = true;
    answer->keeps_courses = call->find_batch;
    answer->card = &call->card;
    answer->cards[answer->card_count++] = call->card;
    measuring->status = run_and_read(call, argv, measuring->base, suffix, output, answer);
    return measuring->status < 0;
}

static int answer_batches(const struct call *call, char *const *argv, const char *base)
{
    struct measuring measuring = {.call = call, .base = base};
    struct ms_dry_batches batches = {.card = &call->card,
                                     .version = MEMSHIM_VERSION,
                                     .what = call->plan.name,
                                     .wanted = call->find_batch,
                                     .report = base};
    struct ms_buffer out = {0};
    bool written;

    if (!ms_dry_batches_run(&call->plan, argv, measure, &measuring, &batches)) {
        return measuring.status > 0 ? measuring.status : 1;
    }
    (call->json ? ms_dry_batches_json : ms_dry_batches_text)(&batches, &out);
    written = ms_cli_put(MS_CLI_DRY_RUN, &out, "-");
    ms_buffer_free(&out);
    for (size_t i = 0; i < batches.count; i++) {
        written = written && batches.rows[i].known;
    }
    return written ? 0 : 1;
}

static int begin(const struct call *call, char *const *argv)
{
    char folder[PATH_MAX], base[PATH_MAX];
    const time_t start = time(NULL);

    complain("%llu simulated %s: nothing is computed, and values are %s",
             (unsigned long long)call->devices, call->card.name,
             call->random ? "drawn at random" : "zeros");
    if (!set_environment() || !ms_dry_ground_preload(argv) || !name_folder(start, folder) ||
        !ms_begin_run("dry-run", folder, start, base) || !ms_dry_ground_readers()) {
        return MS_CLI_WRONG_CALL;
    }
    return (call->plan.count > 0 ? answer_batches : answer_command)(call, argv, base);
}

/* With what is put around it, where anything is. */
static int begin_wrapped(const struct call *call, char *const *command)
{
    struct ms_buffer words = {0};
    char **wrapped = NULL;
    int status = MS_CLI_WRONG_CALL;

    if (!ms_dry_around_any(&call->around)) {
        return begin(call, command);
    }
    if (ms_dry_around_words(&call->around, call->devices, call->allow_writes, command, &words) &&
        ms_dry_ground_wrap(command, &words, &wrapped)) {
        status = begin(call, wrapped);
    }
    free(wrapped);
    ms_buffer_free(&words);
    return status;
}

static uint64_t devices_of(const struct call *call, char *const *command)
{
    const uint64_t ranks = ranks_of(command), world = call->around.world;

    if (world > 0) {
        return world < OF_A_MACHINE ? world : OF_A_MACHINE;
    }
    return ranks > 0 ? ranks : 1;
}

int ms_cli_dry_run(int argc, char **argv)
{
    struct call call = {.card = *ms_card_at(0)};
    int command = argc;
    const int status = read_arguments(argc, argv, &call, &command);

    if (status >= 0) {
        return status;
    }
    if (call.gpu && !ms_dry_card_take(call.gpu, &call.card)) {
        return MS_CLI_WRONG_CALL;
    }
    if (call.find_batch && call.plan.count < 2) {
        return ms_cli_wrong(MS_CLI_DRY_RUN,
                            "--find-batch needs --batch-env or --batch-arg with two "
                            "batches, from which it foretells others");
    }
    if (!ms_dry_around_check(&call.around, argv + command)) {
        return MS_CLI_WRONG_CALL;
    }
    if (call.devices == 0) {
        call.devices = devices_of(&call, argv + command);
    }
    return begin_wrapped(&call, argv + command);
}
