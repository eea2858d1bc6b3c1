/* SPDX-License-Identifier: Apache-2.0 */
/* memshim replay: repeats a recorded run through the pool, on a device that only keeps accounts. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/arithmetic.h"
#include "report/read/traces.h"
#include "report/render/commands/replay.h"
#include "report/trace/format.h"
#include "shim/cli/arguments/cli.h"
#include "shim/cli/arguments/complain.h"
#include "shim/cli/arguments/output.h"
#include "shim/cli/arguments/parse.h"
#include "shim/cli/arguments/values.h"
#include "shim/cli/snapshot.h"
#include "shim/tables/options.h"

#define WHY_BYTES   (PATH_MAX + 512)
#define NEIGHBOURS  12
#define LARGEST_LAG 1000000

struct replay_call {
    const char *trace, *csv, *costs_path;          /* null: not given */
    uint64_t cap_bytes, device_bytes, spill_bytes; /* 0: not given */
    uint64_t host_limit_bytes;
    uint64_t fraction_ppb; /* 0: not given */
    uint64_t lag, steps_every, device;
    bool device_given, min_cap, json, without_charges, without_uses, views;
    enum ms_replay_mode mode;
    enum ms_replay_policy policy;
    enum ms_spill_policy spill_policy;
};

/* ---- the call ---- */

static bool take_size_or_none(const char *value, uint64_t *out)
{
    uint64_t bytes = 0;
    const bool good = ms_parse_size(value, &bytes) || (ms_parse_bytes(value, &bytes) && bytes == 0);

    *out = good ? bytes : *out;
    return good;
}

static bool take_mode(const char *value, struct replay_call *call)
{
    call->mode = strcmp(value, "tensor") == 0 ? MS_REPLAY_TENSOR : MS_REPLAY_NATIVE;
    return call->mode == MS_REPLAY_TENSOR || strcmp(value, "native") == 0;
}

static bool take_policy(const char *value, struct replay_call *call)
{
    int policy = 0;
    const bool good = ms_cli_take_name(value, ms_policy_names, MS_POLICY_COUNT, &policy);

    call->policy = (enum ms_replay_policy)policy;
    return good;
}

static bool take_spill_policy(const char *value, struct replay_call *call)
{
    int policy = 0;
    const bool good =
        ms_cli_take_name(value, ms_spill_policy_names, MS_SPILL_POLICY_COUNT, &policy);

    call->spill_policy = (enum ms_spill_policy)policy;
    return good;
}

/* An option without a value. */
static void take_switch(enum ms_cli_option_id id, struct replay_call *call)
{
    call->min_cap |= id == MS_CLI_REPLAY_MIN_CAP;
    call->without_charges |= id == MS_CLI_REPLAY_WITHOUT_CHARGES;
    call->without_uses |= id == MS_CLI_REPLAY_WITHOUT_USES;
    call->views |= id == MS_CLI_REPLAY_VIEWS;
    call->json |= id == MS_CLI_REPLAY_JSON;
}

static bool take_option(void *ctx, const struct ms_cli_option *option, const char *value)
{
    struct replay_call *call = ctx;

    switch ((int)option->id) {
    case MS_CLI_REPLAY_CAP:
        return ms_parse_size(value, &call->cap_bytes);
    case MS_CLI_REPLAY_FRACTION:
        return ms_parse_fraction(value, &call->fraction_ppb);
    case MS_CLI_REPLAY_DEVICE_MEMORY:
        return ms_parse_size(value, &call->device_bytes);
    case MS_CLI_REPLAY_HOST_LIMIT:
        return take_size_or_none(value, &call->host_limit_bytes);
    case MS_CLI_REPLAY_SPILL:
        return take_size_or_none(value, &call->spill_bytes);
    case MS_CLI_REPLAY_SPILL_POLICY:
        return take_spill_policy(value, call);
    case MS_CLI_REPLAY_MODE:
        return take_mode(value, call);
    case MS_CLI_REPLAY_POLICY:
        return take_policy(value, call);
    case MS_CLI_REPLAY_LAG:
        return ms_cli_take_count(value, LARGEST_LAG, &call->lag);
    case MS_CLI_REPLAY_STEPS_EVERY:
        return ms_cli_take_count(value, UINT32_MAX, &call->steps_every);
    case MS_CLI_REPLAY_COSTS:
        return ms_cli_take_file(value, &call->costs_path);
    case MS_CLI_REPLAY_DEVICE:
        call->device_given = true;
        return ms_cli_take_count(value, 63, &call->device);
    case MS_CLI_REPLAY_TO_CSV:
        return ms_cli_take_file(value, &call->csv);
    default:
        take_switch(option->id, call);
        return true;
    }
}

static int take_trace(void *ctx, const char *word)
{
    struct replay_call *call = ctx;

    if (call->trace) {
        return ms_cli_wrong(MS_CLI_REPLAY, "it replays one trace, and '%s' is a second", word);
    }
    call->trace = word;
    return -1;
}

/* -1 if the call is good, otherwise the exit status. */
static int parse(int argc, char **argv, struct replay_call *call)
{
    static const struct ms_cli_reader reader = {.option = take_option, .operand = take_trace};
    const int status = ms_cli_parse(MS_CLI_REPLAY, argc, argv, &reader, call);

    if (status >= 0) {
        return status;
    }
    if (!call->trace) {
        return ms_cli_wrong(MS_CLI_REPLAY, "a trace is missing: memshim replay TRACE");
    }
    if ((call->cap_bytes > 0) + (call->fraction_ppb > 0) + call->min_cap > 1) {
        return ms_cli_wrong(MS_CLI_REPLAY, "give only one of --cap, --fraction and --min-cap");
    }
    return -1;
}

/* ---- reading ---- */

enum form { FORM_TRACE, FORM_SNAPSHOT, FORM_CSV };

/* A folder has a trace; a file is what it begins like. Standard input is a CSV. */
static enum form form_of(const char *path)
{
    struct stat status;
    char first[8] = "";
    ssize_t bytes = 0;
    const bool there = stat(path, &status) == 0;
    const int fd = there && S_ISREG(status.st_mode) ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (there && S_ISDIR(status.st_mode)) {
        return FORM_TRACE;
    }
    if (fd >= 0) {
        bytes = read(fd, first, sizeof(first));
        (void)close(fd);
    }
    if (bytes == sizeof(first) && memcmp(first, MS_FORMAT_MAGIC, sizeof(first)) == 0) {
        return FORM_TRACE;
    }
    return bytes > 0 && ms_cli_is_snapshot(first, (size_t)bytes) ? FORM_SNAPSHOT : FORM_CSV;
}

static bool read_trace(const struct replay_call *call, struct ms_recording *recording, char *why)
{
    struct ms_buffer traces = {0};
    bool read = ms_traces_find(call->trace, &traces, why, WHY_BYTES);

    if (read && ms_traces_count(&traces) > 1) {
        (void)snprintf(why, WHY_BYTES, "%s has the traces of %zu processes; name one, such as %s",
                       call->trace, ms_traces_count(&traces), ms_traces_at(&traces, 0));
        read = false;
    }
    if (read) {
        read = ms_recording_read_trace(recording, ms_traces_at(&traces, 0),
                                       call->device_given ? (int)call->device : -1, why, WHY_BYTES);
    }
    ms_buffer_free(&traces);
    return read;
}

static bool read_snapshot(const struct replay_call *call, struct ms_recording *recording, char *why)
{
    char device[8];

    (void)snprintf(device, sizeof(device), "%u", (unsigned)call->device);
    return ms_cli_read_snapshot(recording, call->trace, call->device_given ? device : NULL, why,
                                WHY_BYTES);
}

static bool read_form(const struct replay_call *call, struct ms_recording *recording, char *why)
{
    switch (form_of(call->trace)) {
    case FORM_TRACE:
        return read_trace(call, recording, why);
    case FORM_SNAPSHOT:
        return read_snapshot(call, recording, why);
    default:
        return ms_recording_read_csv(recording, call->trace, why, WHY_BYTES);
    }
}

static bool read_recording(const struct replay_call *call, struct ms_recording *recording)
{
    char why[WHY_BYTES] = "out of memory";
    const bool read = ms_recording_begin(recording) && read_form(call, recording, why);

    if (!read) {
        ms_complain("memshim replay: %s", why);
    }
    return read;
}

/* ---- the answer ---- */

static bool set_sizes(const struct replay_call *call, const struct ms_recording *recording,
                      struct ms_replay_config *config)
{
    const uint64_t device_bytes = call->device_bytes ? call->device_bytes : recording->device_bytes;

    config->cap_bytes = call->cap_bytes ? call->cap_bytes : MS_REPLAY_AMPLE_BYTES;
    config->device_bytes = device_bytes ? device_bytes : MS_REPLAY_AMPLE_BYTES;
    if (call->fraction_ppb > 0) {
        if (!device_bytes) {
            ms_complain("memshim replay: --fraction needs --device-memory: the recording "
                        "does not say the device's size");
            return false;
        }
        config->cap_bytes = ms_of_ppb(device_bytes, call->fraction_ppb);
    } else if (!call->cap_bytes && call->device_bytes) {
        config->cap_bytes = call->device_bytes;
    } else if (!call->device_bytes && config->device_bytes < config->cap_bytes) {
        config->device_bytes = config->cap_bytes;
    }
    return true;
}

static int replay(const struct replay_call *call, const struct ms_recording *recording,
                  const struct ms_call_costs *costs)
{
    struct ms_replay_config config = {.host_limit_bytes = call->host_limit_bytes,
                                      .spill_bytes = call->spill_bytes,
                                      .mode = call->mode,
                                      .policy = call->policy,
                                      .spill_policy = call->spill_policy,
                                      .lag = call->lag,
                                      .steps_every = call->steps_every,
                                      .views = call->views,
                                      .charges = !call->without_charges,
                                      .uses_untold = call->without_uses,
                                      .timed = true,
                                      .checked = true,
                                      .costs = costs};
    struct ms_replay_result result;
    struct ms_replay_answer answer = {.trace = call->trace,
                                      .recording = recording,
                                      .config = &config,
                                      .result = &result,
                                      .searched = call->min_cap};
    struct ms_buffer out = {0};
    bool written;

    if (!set_sizes(call, recording, &config)) {
        return MS_CLI_WRONG_CALL;
    }
    if (call->min_cap) {
        answer.min_cap_bytes =
            ms_replay_min_cap(recording, &config, NEIGHBOURS, &result, &answer.replays);
        config.cap_bytes = answer.min_cap_bytes ? answer.min_cap_bytes : MS_REPLAY_AMPLE_BYTES;
        config.device_bytes = config.cap_bytes;
    } else {
        ms_replay_run(recording, &config, &result);
    }
    if (result.host_memory) {
        ms_complain("memshim replay: this machine does not have enough memory for the replay");
        return 1;
    }
    (call->json ? ms_replay_json : ms_replay_text)(&answer, &out);
    written = ms_cli_put(MS_CLI_REPLAY, &out, "-");
    ms_buffer_free(&out);
    return !written || result.failure.happened || result.violation[0] ? 1 : 0;
}

static int write_csv(const struct replay_call *call, const struct ms_recording *recording)
{
    struct ms_buffer out = {0};
    bool written;

    ms_recording_format_csv(recording, &out);
    written = ms_cli_put(MS_CLI_REPLAY, &out, call->csv);
    ms_buffer_free(&out);
    return written ? 0 : 1;
}

static int answer(const struct replay_call *call)
{
    char why[WHY_BYTES] = "out of memory";
    struct ms_recording recording;
    struct ms_call_costs costs;
    int status = 1;

    if (!(call->costs_path ? ms_call_costs_read(&costs, call->costs_path, why, sizeof(why))
                           : ms_call_costs_default(&costs))) {
        ms_complain("memshim replay: %s", why);
    } else if (read_recording(call, &recording)) {
        status = call->csv ? write_csv(call, &recording) : replay(call, &recording, &costs);
        ms_recording_free(&recording);
    } else {
        ms_recording_free(&recording);
    }
    ms_call_costs_free(&costs);
    return status;
}

int ms_cli_replay(int argc, char **argv)
{
    struct replay_call call = {.host_limit_bytes = MS_REPLAY_AMPLE_BYTES};
    const int status = parse(argc, argv, &call);

    return status >= 0 ? status : answer(&call);
}
