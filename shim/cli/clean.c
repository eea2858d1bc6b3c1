/* SPDX-License-Identifier: Apache-2.0 */
/* memshim clean: removes the oldest runs of an output folder. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "allocator/base/clock.h"
#include "allocator/base/units.h"
#include "shim/cli/arguments/cli.h"
#include "shim/cli/arguments/complain.h"
#include "shim/cli/arguments/parse.h"
#include "shim/cli/arguments/values.h"
#include "shim/cli/dry_run/shared.h"
#include "shim/cli/launch/clean.h"
#include "shim/cli/launch/latest.h"
#include "shim/group/file.h"
#include "shim/group/socket.h"

struct clean_call {
    const char *output;
    struct ms_keep keep;
    bool chosen, dry;
    uint64_t runs, bytes;
};

static bool take_option(void *ctx, const struct ms_cli_option *option, const char *value)
{
    struct clean_call *call = ctx;

    if (option->id == MS_CLI_CLEAN_DRY_RUN) {
        call->dry = true;
        return true;
    }
    call->chosen = ms_parse_keep(value, &call->keep);
    return call->chosen;
}

static int take_operand(void *ctx, const char *word)
{
    struct clean_call *call = ctx;

    if (call->output) {
        return ms_cli_wrong(MS_CLI_CLEAN, "one folder at a time, and '%s' is a second", word);
    }
    if (!ms_cli_is_folder(word)) {
        return ms_cli_wrong(MS_CLI_CLEAN, "'%s' is no folder", word);
    }
    call->output = word;
    return -1;
}

static void print_run(void *ctx, const struct ms_clean_run *run)
{
    struct clean_call *call = ctx;
    char date[MS_UNIT_TEXT_BYTES];

    call->runs++;
    call->bytes += run->bytes;
    (void)printf("%s  %10s  %s\n",
                 ms_date_text((uint64_t)run->changed * MS_NS_PER_S, date, sizeof(date)),
                 MS_BYTES(run->bytes), run->path);
}

/* Reads MEMSHIM_KEEP if the call has no limit. -1, or the exit status. */
static int find_keep(struct clean_call *call)
{
    const char *wanted = getenv("MEMSHIM_KEEP");

    if (call->chosen) {
        return -1;
    }
    if (!wanted || wanted[0] == '\0') {
        return ms_cli_wrong(MS_CLI_CLEAN,
                            "say what is to be kept: --keep 20GiB, --keep 30d or both "
                            "(--keep 20GiB,30d), or set MEMSHIM_KEEP");
    }
    if (!ms_parse_keep(wanted, &call->keep)) {
        return ms_cli_wrong(MS_CLI_CLEAN,
                            "MEMSHIM_KEEP=%s: not a size, an age in days, or both, as in 20GiB,30d",
                            wanted);
    }
    return -1;
}

int ms_cli_clean(int argc, char **argv)
{
    static const struct ms_cli_reader reader = {.option = take_option, .operand = take_operand};
    struct clean_call call = {0};
    char why[PATH_MAX + 256];
    int status = ms_cli_parse(MS_CLI_CLEAN, argc, argv, &reader, &call);

    status = status < 0 ? find_keep(&call) : status;
    if (status >= 0) {
        return status;
    }
    call.output = call.output ? call.output : ms_cli_output_folder();
    if (!call.dry) {
        ms_dry_shared_sweep();
    }
    const bool good =
        ms_clean(call.output, &call.keep, call.dry, print_run, &call, why, sizeof(why));
    if (!good) {
        ms_complain("memshim clean: %s", why);
    }
    const uint32_t dead = call.dry ? 0 : ms_group_sweep(MS_GROUP_FOLDER);
    const uint32_t unheard = call.dry ? 0 : ms_socket_sweep(MS_GROUP_FOLDER);
    if (dead != 0) {
        (void)printf(
            "%u file%s of ended groups of processes (MEMSHIM_CAP_OF=run) removed from %s\n", dead,
            dead == 1 ? "" : "s", MS_GROUP_FOLDER);
    }
    if (unheard != 0) {
        (void)printf("%u socket%s of killed processes that shared memory removed from %s\n",
                     unheard, unheard == 1 ? "" : "s", MS_GROUP_FOLDER);
    }
    (void)printf("%s run%s, %s, %s\n", MS_COUNT(call.runs), call.runs == 1 ? "" : "s",
                 MS_BYTES(call.bytes), call.dry ? "would go" : "removed");
    return good ? 0 : 1;
}
