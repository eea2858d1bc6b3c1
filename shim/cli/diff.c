/* SPDX-License-Identifier: Apache-2.0 */
/* memshim diff: two runs, two ranks, or two moments of one. */

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "report/model/reading/read_model.h"
#include "report/model/survey/take.h"
#include "report/read/traces.h"
#include "report/render/commands/diff.h"
#include "shim/cli/arguments/cli.h"
#include "shim/cli/arguments/complain.h"
#include "shim/cli/arguments/output.h"
#include "shim/cli/arguments/parse.h"
#include "shim/cli/arguments/values.h"

#define WHY_BYTES (PATH_MAX + 512)

struct diff_call {
    struct ms_diff diff;
    struct ms_buffer traces[MS_DIFF_SIDES]; /* struct ms_trace_path */
    char paths[MS_DIFF_SIDES][PATH_MAX];    /* as the user wrote it, without the moment */
    size_t sides;                           /* sides that the user named */
    const char *modules;
    bool json;
};

/* The path may contain an '@' itself: if the whole word exists as a path, it has no moment. -1 if
 * all is well, otherwise the exit status. */
static int take_side(void *ctx, const char *word)
{
    struct diff_call *call = ctx;
    const char *at = strrchr(word, '@');
    struct stat status;
    char why[WHY_BYTES] = "";

    if (call->sides == MS_DIFF_SIDES) {
        return ms_cli_wrong(MS_CLI_DIFF, "it compares two, and '%s' is a third", word);
    }

    struct ms_diff_side *side = &call->diff.sides[call->sides];
    char *path = call->paths[call->sides];
    const bool whole = !at || stat(word, &status) == 0;
    const size_t length = whole ? strlen(word) : (size_t)(at - word);

    if (length >= sizeof(call->paths[0])) {
        return ms_cli_wrong(MS_CLI_DIFF, "the path is too long: '%s'", word);
    }
    memcpy(path, word, length);
    path[length] = '\0';
    side->path = word;
    if (!whole && !ms_moment_parse(at + 1, &side->moment)) {
        return ms_cli_wrong(MS_CLI_DIFF, "after the @ comes one of " MS_MOMENT_WORDS ", not '%s'",
                            at + 1);
    }
    if (!ms_traces_find(path, &call->traces[call->sides], why, sizeof(why))) {
        ms_complain("memshim diff: %s", why);
        return 1;
    }
    call->sides++;
    return -1;
}

static bool take_option(void *ctx, const struct ms_cli_option *option, const char *value)
{
    struct diff_call *call = ctx;

    switch ((int)option->id) {
    case MS_CLI_DIFF_FORMAT:
        call->json = strcmp(value, "json") == 0;
        return call->json || strcmp(value, "text") == 0;
    case MS_CLI_DIFF_PREDICT:
        call->diff.predicts = true;
        return ms_prediction_parse(value, &call->diff.prediction);
    default:
        return ms_cli_take_folder(value, &call->modules);
    }
}

/* -1 if the call is good, otherwise the exit status. */
static int parse(int argc, char **argv, struct diff_call *call)
{
    static const struct ms_cli_reader reader = {.option = take_option, .operand = take_side};
    const int status = ms_cli_parse(MS_CLI_DIFF, argc, argv, &reader, call);

    if (status >= 0) {
        return status;
    }
    if (call->sides == 0) {
        return ms_cli_wrong(MS_CLI_DIFF, "name the two runs, ranks or moments to compare");
    }
    if (call->sides < MS_DIFF_SIDES) {
        return ms_cli_wrong(MS_CLI_DIFF,
                            "it compares two runs, ranks or moments, and '%s' is the only one",
                            call->diff.sides[0].path);
    }
    for (size_t i = 0; i < MS_DIFF_SIDES && call->diff.predicts; i++) {
        if (ms_traces_count(&call->traces[i]) > 1) {
            return ms_cli_wrong(
                MS_CLI_DIFF,
                "--predict compares one process with one; name the folder of one rank in '%s'",
                call->diff.sides[i].path);
        }
    }
    return -1;
}

static bool same_trace(const struct diff_call *call)
{
    struct stat a, b;

    return ms_traces_count(&call->traces[MS_DIFF_A]) == 1 &&
           ms_traces_count(&call->traces[MS_DIFF_B]) == 1 &&
           stat(ms_traces_at(&call->traces[MS_DIFF_A], 0), &a) == 0 &&
           stat(ms_traces_at(&call->traces[MS_DIFF_B], 0), &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* The time of A's moment, on each device of the process. */
static bool find_since(const struct diff_call *call, const struct ms_model *model,
                       uint64_t since_ns[MS_DEVICE_COUNT], char *why, size_t why_bytes)
{
    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        uint64_t until_ns;

        if (!model->devices[i].used) {
            continue;
        }
        if (!ms_moment_find(model, &call->diff.sides[MS_DIFF_A].moment, i, &since_ns[i], why,
                            why_bytes) ||
            !ms_moment_find(model, &call->diff.sides[MS_DIFF_B].moment, i, &until_ns, why,
                            why_bytes)) {
            return false;
        }
        if (since_ns[i] > until_ns) {
            (void)snprintf(why, why_bytes,
                           "the moments are of one run: name the earlier one first, not %s",
                           call->diff.sides[MS_DIFF_A].path);
            return false;
        }
    }
    return true;
}

/* What is missing in a damaged trace would pass for a difference. */
static void complain_of_damage(const struct ms_model *model)
{
    const char *warning = model->warnings.at;

    for (uint64_t i = 0; i < model->warning_count; i++) {
        ms_complain("memshim diff: %s: %s", model->path, warning);
        warning += strlen(warning) + 1;
    }
}

static bool add_trace(struct diff_call *call, enum ms_diff_side_name side, const char *path)
{
    uint64_t since_ns[MS_DEVICE_COUNT] = {0};
    char why[WHY_BYTES] = "";
    struct ms_model *model = ms_model_new(path, why, sizeof(why));
    const bool since = call->diff.between && side == MS_DIFF_B;
    bool good = model != NULL;

    if (model) {
        complain_of_damage(model);
        ms_model_name_sites(model, MS_STACKS_LINES, call->modules);
        if (call->diff.predicts) {
            ms_model_survey(model, MS_SURVEY_PREDICTING);
        }
        good = (!since || find_since(call, model, since_ns, why, sizeof(why))) &&
               ms_diff_add(&call->diff, side, model, since ? since_ns : NULL, why, sizeof(why));
        ms_model_delete(model);
    }
    if (!good) {
        ms_complain("memshim diff: %s", why);
    }
    return good;
}

static int compare(struct diff_call *call)
{
    struct ms_buffer out = {0};
    bool good = true;

    call->diff.between = same_trace(call);
    for (size_t side = 0; side < MS_DIFF_SIDES && good; side++) {
        for (size_t i = 0; i < ms_traces_count(&call->traces[side]) && good; i++) {
            good =
                add_trace(call, (enum ms_diff_side_name)side, ms_traces_at(&call->traces[side], i));
        }
    }
    if (good) {
        ms_diff_sort(&call->diff);
        (call->json ? ms_diff_json : ms_diff_text)(&call->diff, &out);
        out.failed |= call->diff.rows.failed || call->diff.match.keys.text.failed ||
                      call->diff.match.shown.failed;
        good = ms_cli_put(MS_CLI_DIFF, &out, "-");
    }
    ms_buffer_free(&out);
    return good ? 0 : 1;
}

int ms_cli_diff(int argc, char **argv)
{
    struct diff_call *call = calloc(1, sizeof(*call));
    int status;

    if (!call) {
        ms_complain("memshim diff: out of memory");
        return 1;
    }
    status = parse(argc, argv, call);
    if (status < 0) {
        status = compare(call);
    }
    for (size_t side = 0; side < MS_DIFF_SIDES; side++) {
        ms_buffer_free(&call->traces[side]);
    }
    ms_diff_free(&call->diff);
    free(call);
    return status;
}
