/* SPDX-License-Identifier: Apache-2.0 */
/* memshim dry-run: what a command will need, found by running it on the simulated GPU, which
 * computes nothing. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "allocator/base/clock.h"
#include "shim/cli/arguments/cli.h"
#include "shim/cli/arguments/output.h"
#include "shim/cli/arguments/parse.h"
#include "shim/cli/dry_run/call.h"
#include "shim/cli/dry_run/card.h"
#include "shim/cli/dry_run/complaint.h"
#include "shim/cli/dry_run/ground.h"
#include "shim/cli/dry_run/host.h"
#include "shim/cli/dry_run/once.h"
#include "shim/cli/dry_run/weights.h"
#include "shim/cli/launch/finish.h"
#include "shim/cli/launch/interrupt.h"
#include "shim/cli/launch/latest.h"
#include "shim/cli/launch/place.h"
#include "shim/cli/launch/preload.h"
#include "shim/tables/identity.h"

#define LONG_NS (60 * MS_NS_PER_S)

static bool any_died_of_oom(const struct ms_dry_answer *answer)
{
    for (size_t i = 0; i < ms_dry_rank_count(answer); i++) {
        if (ms_dry_rank_at(answer, i)->died_of_oom) {
            return true;
        }
    }
    return false;
}

/* The traces go to a folder of their own below the usual one, so that they are not taken for other
 * runs. */
static bool name_folder(time_t start, char *folder)
{
    char id[64];

    ms_identity_start_id(start, getpid(), id, sizeof(id));
    return snprintf(folder, PATH_MAX, "%s/dry-run-%s", ms_cli_output_folder(), id) < PATH_MAX;
}

static void choose_cards(const struct ms_dry_call *call, struct ms_dry_answer *answer)
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

/* Settings that the user has not chosen: only this command prints messages, nothing is spilled, and
 * no service outside is told of the run. */
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

/* -1 if it ran, otherwise the exit status. base: the full name of the first run's folder. */
static int run_and_read(const struct ms_dry_call *call, char *const *argv, const char *base,
                        const char *suffix, char *output, struct ms_dry_answer *answer)
{
    const time_t start = time(NULL);
    int status;

    if (snprintf(output, PATH_MAX, "%s%s", base, suffix) >= PATH_MAX ||
        setenv("MEMSHIM_OUTPUT", output, 1) != 0) {
        return MS_CLI_WRONG_CALL;
    }
    status = ms_dry_once(call, argv, output, answer);
    if (status < 0) {
        read_traces(output, answer);
        ms_dry_save_cards(output, answer);
        ms_finish_runs(output, start, false);
    }
    return status;
}

/* A run that took long is repeated only if the user asks for it. */
static bool wants_late(const struct ms_dry_call *call, const struct ms_dry_answer *answer)
{
    if (answer->end > MS_DRY_ENDED || ms_dry_rank_count(answer) == 0) {
        return false;
    }
    return call->schedules == MS_DRY_SCHEDULES_BOTH ||
           (call->schedules == MS_DRY_SCHEDULES_AUTO && answer->elapsed_ns < LONG_NS);
}

/* Repeats the run with the other schedule. Its result is left out if it does not get as far. */
static void run_late(const struct ms_dry_call *call, char *const *argv, const char *base,
                     struct ms_dry_answer *late, struct ms_dry_answer *answer)
{
    char output[PATH_MAX];

    late->is_late = true;
    late->ample = answer->ample;
    choose_cards(call, late);
    complain("second run: the host learns that work has ended only when it waits for it "
             "(--schedules one leaves this run out)");
    if (run_and_read(call, argv, base, "-late", output, late) < 0 && late->end <= MS_DRY_ENDED &&
        ms_dry_rank_count(late) == ms_dry_rank_count(answer)) {
        answer->late = late;
    } else if (late->end != MS_DRY_INTERRUPTED) {
        complain("the second run did not get as far as the first, and is left out");
    }
}

static int answer_command(const struct ms_dry_call *call, char *const *argv, const char *base)
{
    struct ms_dry_answer answer = {.devices = call->devices,
                                   .wanted_steps = call->steps,
                                   .wants_validation = call->validation,
                                   .world = call->around.world};
    struct ms_dry_answer late = answer;
    char output[PATH_MAX];
    const uint64_t start_ns = ms_clock_ns();
    struct ms_buffer out = {0};
    bool written;
    int status;

    choose_cards(call, &answer);
    status = run_and_read(call, argv, base, "", output, &answer);
    if (status < 0 && answer.end != MS_DRY_INTERRUPTED && any_died_of_oom(&answer)) {
        ms_dry_answer_free(&answer);
        answer.ranks = (struct ms_buffer){0};
        answer.values = (struct ms_buffer){0};
        answer.ample = true;
        complain("the command ran out of the card's memory; it runs once more, with enough memory");
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
    status = written && ms_dry_rank_count(&answer) > 0 && answer.end <= MS_DRY_ENDED &&
                     !ms_dry_other_rank(&answer) && late.end != MS_DRY_INTERRUPTED
                 ? 0
                 : 1;
    ms_dry_answer_free(&answer);
    ms_dry_answer_free(&late);
    return status;
}

/* ---- several batches ---- */

struct measuring {
    const struct ms_dry_call *call;
    const char *base;
    int status; /* of the first run that could not be made */
};

static bool measure(void *ctx, char *const *argv, const char *suffix, struct ms_dry_answer *answer)
{
    struct measuring *measuring = ctx;
    const struct ms_dry_call *call = measuring->call;
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

static int answer_batches(const struct ms_dry_call *call, char *const *argv, const char *base)
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

static int begin(const struct ms_dry_call *call, char *const *argv)
{
    char folder[PATH_MAX], base[PATH_MAX];
    const time_t start = time(NULL);

    complain("%llu simulated %s: nothing is computed, and values are %s",
             (unsigned long long)call->devices, call->card.name,
             call->random ? "drawn at random" : "zeros");
    if (!set_environment()) {
        return MS_CLI_WRONG_CALL;
    }
    /* Before the simulated GPU: a Python that counts parameters needs none. */
    ms_dry_weights_say(argv, call->around.processes, call->around.host_bytes,
                       call->around.weights == NULL);
    if (!ms_dry_ground_preload(argv) || !name_folder(start, folder) ||
        !ms_begin_run("dry-run", folder, start, base) || !ms_dry_ground_readers()) {
        return MS_CLI_WRONG_CALL;
    }
    return (call->plan.count > 0 ? answer_batches : answer_command)(call, argv, base);
}

/* Runs the command inside whatever is put around it. */
static int begin_wrapped(const struct ms_dry_call *call, char *const *command)
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

int ms_cli_dry_run(int argc, char **argv)
{
    struct ms_dry_call call = {.card = *ms_card_at(0)};
    char program[PATH_MAX];
    int command = argc;
    const int status = ms_dry_call_read(argc, argv, &call, &command);

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
    /* What stands around the command begins first, and would be all that is there. */
    if (ms_dry_around_any(&call.around) && !ms_cli_find_program(argv[command], program)) {
        return ms_cannot_run("dry-run", argv[command], ENOENT);
    }
    if (call.devices == 0) {
        call.devices = ms_dry_call_devices(&call, argv + command);
    }
    call.around.processes = ms_dry_call_processes(argv + command);
    call.around.host_bytes = call.host_bytes > 0 ? call.host_bytes : ms_dry_host_room();
    return begin_wrapped(&call, argv + command);
}
