/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the arguments of memshim dry-run. */
#include "shim/cli/dry_run/call.h"

#include <string.h>

#include "shim/cli/arguments/cli.h"
#include "shim/cli/arguments/parse.h"
#include "shim/cli/arguments/values.h"
#include "shim/cli/dry_run/words.h"
#include "shim/tables/options.h"

#define MOST_DEVICES 16
#define MOST_STEPS   1000000
#define MOST_RANKS   65536
#define OF_A_MACHINE 8 /* devices, if nothing says how many */

static bool take_schedules(const char *value, struct ms_dry_call *call)
{
    static const char *const names[] = {"auto", "one", "both"};
    int schedules = 0;
    const bool good = ms_cli_take_name(value, names, sizeof(names) / sizeof(*names), &schedules);

    call->schedules = schedules;
    return good;
}

static bool take_plan(const char *value, bool is_variable, struct ms_dry_call *call)
{
    call->two_plans =
        call->two_plans || (call->plan.count > 0 && call->plan.is_variable != is_variable);
    return ms_dry_plan_take(value, is_variable, &call->plan);
}

static bool take_option(void *ctx, const struct ms_cli_option *option, const char *value)
{
    struct ms_dry_call *call = ctx;

    switch ((int)option->id) {
    case MS_CLI_DRY_RUN_GPU:
        call->gpu = value;
        return true;
    case MS_CLI_DRY_RUN_GPUS:
        return ms_cli_take_count(value, MOST_DEVICES, &call->devices) && call->devices > 0;
    case MS_CLI_DRY_RUN_STEPS:
        return ms_cli_take_count(value, MOST_STEPS, &call->steps) && call->steps > 0;
    case MS_CLI_DRY_RUN_VALIDATION:
        call->validation = true;
        return true;
    case MS_CLI_DRY_RUN_BATCH_ENV:
        return take_plan(value, true, call);
    case MS_CLI_DRY_RUN_BATCH_ARG:
        return take_plan(value, false, call);
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
    case MS_CLI_DRY_RUN_HOST_MEMORY:
        return ms_parse_size(value, &call->host_bytes);
    case MS_CLI_DRY_RUN_ALLOW_WRITES:
        call->allow_writes = true;
        return true;
    default:
        call->json = true;
        return true;
    }
}

int ms_dry_call_read(int argc, char **argv, struct ms_dry_call *call, int *command)
{
    const struct ms_cli_reader reader = {.option = take_option, .rest = command};
    const int status = ms_cli_parse(MS_CLI_DRY_RUN, argc, argv, &reader, call);

    if (status >= 0) {
        return status;
    }
    if (*command == argc) {
        return ms_cli_wrong(
            MS_CLI_DRY_RUN,
            "there is no command to run: memshim dry-run [OPTION]... -- COMMAND...");
    }
    if (call->plan.count > 0 && call->schedules == MS_DRY_SCHEDULES_BOTH) {
        return ms_cli_wrong(MS_CLI_DRY_RUN, "--schedules both is of one batch: with --batch-env or "
                                            "--batch-arg, each batch runs once");
    }
    return call->two_plans
               ? ms_cli_wrong(MS_CLI_DRY_RUN, "--batch-env and --batch-arg both set the "
                                              "batch: give one of them")
               : -1;
}

/* What the launcher's argument NAME=N or NAME N says. `word` is one of the buffer's. False: it is
 * another word. */
static bool take_ranks(const char *word, const char *name, uint64_t *ranks)
{
    const size_t length = strlen(name);

    if (strncmp(word, name, length) != 0 || (word[length] != '=' && word[length] != '\0')) {
        return false;
    }
    /* The next word begins behind this one's end; after the last one comes an empty word. */
    (void)ms_cli_take_count(word + length + 1, MOST_DEVICES, ranks);
    return true;
}

/* How many ranks the launcher's arguments ask for on this machine; 0: they do not say. */
static uint64_t ranks_of(char *const *command)
{
    static const char *const names[] = {"--nproc-per-node", "--nproc_per_node", "--num_processes"};
    struct ms_buffer words = {0};
    uint64_t ranks = 0;

    ms_dry_words(command, &words);
    for (size_t i = 0; !words.failed && i < words.bytes; i += strlen(words.at + i) + 1) {
        for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++) {
            (void)take_ranks(words.at + i, names[k], &ranks);
        }
    }
    ms_buffer_free(&words);
    return ranks;
}

uint64_t ms_dry_call_processes(char *const *command)
{
    const uint64_t ranks = ranks_of(command);

    return ranks > 0 ? ranks : 1;
}

uint64_t ms_dry_call_devices(const struct ms_dry_call *call, char *const *command)
{
    const uint64_t world = call->around.world;

    if (world > 0) {
        return world < OF_A_MACHINE ? world : OF_A_MACHINE;
    }
    return ms_dry_call_processes(command);
}
