/* memshim replay: a recorded run once more, through the pool, on a device that only keeps accounts.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report/format.h"
#include "report/replay_output.h"
#include "report/traces.h"
#include "shim/cli/cli.h"
#include "shim/options.h"

#define WHY_BYTES   (PATH_MAX + 512)
#define NEIGHBOURS  12
#define LARGEST_LAG 1000000

static const char usage[] =
    "Usage: memshim replay TRACE [--cap SIZE|--fraction F|--min-cap] [OPTION...]\n"
    "Runs a recorded run through the pool, without a device: would it have fitted, and at what\n"
    "price?\n\n"
    "  TRACE             a trace.mshm or a process's folder; or a CSV, plain or gzip (- is the\n"
    "                    standard input), with the header time_us,op,id,bytes,stream,site\n"
    "  --cap SIZE        most device memory that may be charged, as in 20GiB; default: no cap\n"
    "  --fraction F      the same as a fraction of the device\n"
    "  --min-cap         find the smallest cap, to 2 MiB, with which it completes with nothing on\n"
    "                    the host and with nothing charged beside the pool\n"
    "  --device-memory SIZE  of the device; default: that of the recording\n"
    "  --host-limit SIZE     most host memory that may stand behind holes; default: no limit\n"
    "  --spill SIZE      let live memory go to the host, at most so much at a time; default: "
    "none.\n"
    "                    What is used when is a model (report/replay_uses.h): a range at its "
    "birth\n"
    "                    and right before its death; what persists, besides: parameters forward,\n"
    "                    backward and at a step's end, the optimizer's state at a step's end\n"
    "  --spill-policy P  predict (default): what is used last, as the last step foretells it; or\n"
    "                    lru: what was used least recently, back between steps where room is\n"
    "  --without-charges     leave out what the driver took beside the pool (contexts, ...)\n"
    "  --without-uses    the pool is not told what is used, as where the driver does not say what\n"
    "                    a kernel's parameters are (before 12.4)\n"
    "  --mode native|tensor  native (default): segments and pages as they were asked for; tensor:\n"
    "                    every tensor a block of its own, placed by the pool\n"
    "  --views           what the pool places may lie on views: a partly used chunk is mapped "
    "once\n"
    "                    more, at another address, for its free bytes (MEMSHIM_VIEWS=on)\n"
    "  --policy P        which chunk is taken out of holes: default, highest, oldest, newest, gap\n"
    "                    or oracle, which knows the future\n"
    "  --lag N           work on the device is done N operations later; default 0\n"
    "  --steps-every N   a step is N operations; default: where the CSV says 'step'\n"
    "  --costs FILE      what calls cost: a CSV with the header call,bytes,median_ns,p99_ns\n"
    "  --device N        of a trace of several devices; default: the one with most events\n"
    "  --json            the answer as JSON (schema memshim-replay/1)\n"
    "  --to-csv FILE     write the recording as CSV (- is the terminal) and do nothing else\n\n"
    "Where the run died of an out-of-memory, it completes with what serves that request, too.\n"
    "The status is 0 where the run completes, 1 where it does not or cannot be read.\n";

struct call {
    const char *trace, *csv, *costs_path;
    uint64_t cap_bytes, device_bytes, host_limit_bytes, spill_bytes; /* 0: not given */
    double fraction;                                                 /* 0: not given */
    uint64_t lag, steps_every, device;
    bool device_given, min_cap, json, without_charges, without_uses, views;
    enum ms_replay_mode mode;
    enum ms_replay_policy policy;
    enum ms_spill_policy spill_policy;
};

/* ---- the call ---- */

static bool take_count(const char *value, uint64_t most, uint64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoull(value, &end, 10);
    return value[0] >= '0' && value[0] <= '9' && *end == '\0' && errno == 0 && *out <= most;
}

static bool take_mode(const char *value, struct call *call)
{
    call->mode = strcmp(value, "tensor") == 0 ? MS_REPLAY_TENSOR : MS_REPLAY_NATIVE;
    return call->mode == MS_REPLAY_TENSOR || strcmp(value, "native") == 0;
}

static bool take_policy(const char *value, struct call *call)
{
    for (int i = 0; i < MS_POLICY_COUNT; i++) {
        if (strcmp(ms_policy_names[i], value) == 0) {
            call->policy = (enum ms_replay_policy)i;
            return true;
        }
    }
    return false;
}

static bool take_spill_policy(const char *value, struct call *call)
{
    for (int i = 0; i < MS_SPILL_POLICY_COUNT; i++) {
        if (strcmp(ms_spill_policy_names[i], value) == 0) {
            call->spill_policy = (enum ms_spill_policy)i;
            return true;
        }
    }
    return false;
}

enum option {
    CAP,
    FRACTION,
    DEVICE_MEMORY,
    HOST_LIMIT,
    SPILL,
    SPILL_POLICY,
    MODE,
    POLICY,
    LAG,
    STEPS_EVERY,
    COSTS,
    DEVICE,
    TO_CSV,
    MIN_CAP, /* from here on without a value */
    WITHOUT_CHARGES,
    WITHOUT_USES,
    VIEWS,
    JSON,
    OPTIONS
};

static const struct {
    const char *name, *wants;
} options[OPTIONS] = {
    [CAP] = {"--cap", "a size as in 20GiB"},
    [FRACTION] = {"--fraction", "a fraction 0 < f <= 1"},
    [DEVICE_MEMORY] = {"--device-memory", "a size as in 80GiB"},
    [HOST_LIMIT] = {"--host-limit", "a size as in 4GiB"},
    [SPILL] = {"--spill", "a size as in 4GiB"},
    [SPILL_POLICY] = {"--spill-policy", "predict or lru"},
    [MODE] = {"--mode", "native or tensor"},
    [POLICY] = {"--policy", "default, highest, oldest, newest, gap or oracle"},
    [LAG] = {"--lag", "a number of operations, at most 1000000"},
    [STEPS_EVERY] = {"--steps-every", "a number of operations"},
    [COSTS] = {"--costs", "a file"},
    [DEVICE] = {"--device", "a device's number, 0 to 63"},
    [TO_CSV] = {"--to-csv", "a file, or - for the terminal"},
    [MIN_CAP] = {"--min-cap", NULL},
    [WITHOUT_CHARGES] = {"--without-charges", NULL},
    [WITHOUT_USES] = {"--without-uses", NULL},
    [VIEWS] = {"--views", NULL},
    [JSON] = {"--json", NULL},
};

static bool take_value(enum option option, const char *value, struct call *call)
{
    switch (option) {
    case CAP:
        return ms_parse_bytes(value, &call->cap_bytes) && call->cap_bytes > 0;
    case FRACTION:
        return ms_parse_fraction(value, &call->fraction);
    case DEVICE_MEMORY:
        return ms_parse_bytes(value, &call->device_bytes) && call->device_bytes > 0;
    case HOST_LIMIT:
        return ms_parse_bytes(value, &call->host_limit_bytes);
    case SPILL:
        return ms_parse_bytes(value, &call->spill_bytes);
    case SPILL_POLICY:
        return take_spill_policy(value, call);
    case MODE:
        return take_mode(value, call);
    case POLICY:
        return take_policy(value, call);
    case LAG:
        return take_count(value, LARGEST_LAG, &call->lag);
    case STEPS_EVERY:
        return take_count(value, UINT32_MAX, &call->steps_every);
    case COSTS:
        call->costs_path = value;
        return value[0] != '\0';
    case DEVICE:
        call->device_given = true;
        return take_count(value, 63, &call->device);
    case TO_CSV:
        call->csv = value;
        return value[0] != '\0';
    case MIN_CAP:
        call->min_cap = true;
        return true;
    case WITHOUT_CHARGES:
        call->without_charges = true;
        return true;
    case WITHOUT_USES:
        call->without_uses = true;
        return true;
    case VIEWS:
        call->views = true;
        return true;
    default:
        call->json = true;
        return true;
    }
}

static int wrong(const char *what, const char *given)
{
    (void)fprintf(stderr, "memshim replay: %s '%s' (memshim replay --help)\n", what, given);
    return MS_CLI_WRONG_CALL;
}

/* A word that begins with a dash. -1 where it is good, else the exit status. */
static int take_option(const char *word, const char *next, struct call *call, bool *took_next)
{
    const size_t length = strcspn(word, "=");
    int option = 0;

    while (option < OPTIONS && (strlen(options[option].name) != length ||
                                strncmp(options[option].name, word, length) != 0)) {
        option++;
    }
    if (option == OPTIONS || (word[length] == '=' && !options[option].wants)) {
        return wrong("there is no option", word);
    }

    const char *value = word[length] == '=' ? word + length + 1 : next ? next : "";

    if (!take_value((enum option)option, value, call)) {
        (void)fprintf(stderr, "memshim replay: %s is %s, not '%s' (memshim replay --help)\n",
                      options[option].name, options[option].wants, value);
        return MS_CLI_WRONG_CALL;
    }
    *took_next = options[option].wants && word[length] != '=';
    return -1;
}

static int parse(int argc, char **argv, struct call *call)
{
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        bool took_next = false;

        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            (void)fputs(usage, stdout);
            return 0;
        }
        if (word[0] == '-' && word[1] != '\0') {
            const int status =
                take_option(word, i + 1 < argc ? argv[i + 1] : NULL, call, &took_next);

            if (status >= 0) {
                return status;
            }
        } else if (call->trace) {
            return wrong("there is one trace too many:", word);
        } else {
            call->trace = word;
        }
        i += took_next;
    }
    if (!call->trace) {
        return wrong("a trace is missing:", "TRACE");
    }
    if ((call->cap_bytes > 0) + (call->fraction > 0) + call->min_cap > 1) {
        return wrong("only one can be given of", "--cap, --fraction, --min-cap");
    }
    return -1;
}

/* ---- reading ---- */

/* A folder, or a file that begins as a trace does; anything else is taken for a CSV. */
static bool is_trace(const char *path)
{
    struct stat status;
    char magic[8] = "";
    const bool there = stat(path, &status) == 0;
    bool found = there && S_ISDIR(status.st_mode);
    const int fd = there && S_ISREG(status.st_mode) ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (fd >= 0) {
        found = read(fd, magic, sizeof(magic)) == sizeof(magic) &&
                memcmp(magic, MS_FORMAT_MAGIC, sizeof(magic)) == 0;
        (void)close(fd);
    }
    return found;
}

static bool read_trace(const struct call *call, struct ms_recording *recording, char *why)
{
    struct ms_buffer traces = {0};
    bool read = ms_traces_find(call->trace, &traces, why, WHY_BYTES);

    if (read && ms_traces_count(&traces) > 1) {
        (void)snprintf(why, WHY_BYTES,
                       "%s: %zu processes have their traces there; name one, as in %s", call->trace,
                       ms_traces_count(&traces), ms_traces_at(&traces, 0));
        read = false;
    }
    if (read) {
        read = ms_recording_read_trace(recording, ms_traces_at(&traces, 0),
                                       call->device_given ? (int)call->device : -1, why, WHY_BYTES);
    }
    ms_buffer_free(&traces);
    return read;
}

static bool read_recording(const struct call *call, struct ms_recording *recording)
{
    char why[WHY_BYTES] = "out of memory";
    const bool read =
        ms_recording_begin(recording) &&
        (is_trace(call->trace) ? read_trace(call, recording, why)
                               : ms_recording_read_csv(recording, call->trace, why, sizeof(why)));

    if (!read) {
        (void)fprintf(stderr, "memshim replay: %s\n", why);
    }
    return read;
}

/* ---- the answer ---- */

static int put(const struct ms_buffer *out, const char *path)
{
    const bool terminal = strcmp(path, "-") == 0;
    const int fd =
        terminal ? STDOUT_FILENO : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    int error = fd < 0 ? errno : 0;

    if (fd >= 0) {
        error = out->failed ? ENOMEM : ms_buffer_write(out, fd);
    }
    if (fd >= 0 && !terminal && close(fd) != 0 && !error) {
        error = errno;
    }
    if (error) {
        (void)fprintf(stderr, "memshim replay: %s cannot be written: %s\n",
                      terminal ? "the standard output" : path, strerror(error));
    }
    return error ? 1 : 0;
}

static bool set_sizes(const struct call *call, const struct ms_recording *recording,
                      struct ms_replay_config *config)
{
    const uint64_t device_bytes = call->device_bytes ? call->device_bytes : recording->device_bytes;

    config->cap_bytes = call->cap_bytes ? call->cap_bytes : MS_REPLAY_AMPLE_BYTES;
    config->device_bytes = device_bytes ? device_bytes : MS_REPLAY_AMPLE_BYTES;
    if (call->fraction > 0) {
        if (!device_bytes) {
            (void)fprintf(stderr, "memshim replay: --fraction needs --device-memory: the recording "
                                  "does not tell the device's size\n");
            return false;
        }
        config->cap_bytes = (uint64_t)(call->fraction * (double)device_bytes);
    } else if (!call->cap_bytes && call->device_bytes) {
        config->cap_bytes = call->device_bytes;
    } else if (!call->device_bytes && config->device_bytes < config->cap_bytes) {
        config->device_bytes = config->cap_bytes;
    }
    return true;
}

static int replay(const struct call *call, const struct ms_recording *recording,
                  const struct ms_call_costs *costs)
{
    struct ms_replay_config config = {
        .host_limit_bytes = call->host_limit_bytes ? call->host_limit_bytes : MS_REPLAY_AMPLE_BYTES,
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
    int status;

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
        (void)fprintf(stderr, "memshim replay: this machine has no memory for it\n");
        return 1;
    }
    (call->json ? ms_replay_json : ms_replay_text)(&answer, &out);
    status = put(&out, "-");
    ms_buffer_free(&out);
    return status != 0 || result.failure.happened || result.violation[0] ? 1 : 0;
}

static int write_csv(const struct call *call, const struct ms_recording *recording)
{
    struct ms_buffer out = {0};
    int status;

    ms_recording_format_csv(recording, &out);
    status = put(&out, call->csv);
    ms_buffer_free(&out);
    return status;
}

static int answer(const struct call *call)
{
    char why[WHY_BYTES] = "out of memory";
    struct ms_recording recording;
    struct ms_call_costs costs;
    int status = 1;

    if (!(call->costs_path ? ms_call_costs_read(&costs, call->costs_path, why, sizeof(why))
                           : ms_call_costs_default(&costs))) {
        (void)fprintf(stderr, "memshim replay: %s\n", why);
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
    struct call call = {0};
    const int status = parse(argc, argv, &call);

    return status >= 0 ? status : answer(&call);
}
