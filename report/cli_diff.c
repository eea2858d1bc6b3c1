#include "report/cli_diff.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report/cli_words.h"
#include "report/diff.h"
#include "report/traces.h"

#define WRONG_CALL 2
#define WHY_BYTES  (PATH_MAX + 512)

static const char usage[] =
    "Usage: memshim diff A[@MOMENT] B[@MOMENT] [--predict NAME=A,B] [--format text|json]\n"
    "                    [--modules DIR]\n"
    "Says what B held that A did not, call site by call site. Call sites are matched by the\n"
    "function, file and line of their frames, never by addresses.\n\n"
    "  A, B       a trace, a process's folder, or a run's (all its processes together)\n"
    "  @MOMENT    peak (default), oom, end, a time into the run such as 40m, 2.5s or 1h30m, or\n"
    "             step:N. Of two moments of one process, as in run/rank0@40m run/rank0@3h, it\n"
    "             says what was born between them and is still there\n"
    "  --predict  A and B were run with different values of something: batch=8,16 or\n"
    "             length=512,1024. Fits what each call site holds to it, and says what fits\n"
    "  --format   text (default) or json\n"
    "  --modules  as for memshim report\n";

struct call {
    struct ms_diff diff;
    struct ms_buffer traces[MS_DIFF_SIDES]; /* struct ms_trace_path */
    char paths[MS_DIFF_SIDES][PATH_MAX];    /* as named, without the moment */
    size_t sides;                           /* that were named */
    const char *modules;
    bool json;
};

static int wrong(const char *what, const char *given)
{
    (void)fprintf(stderr, "memshim diff: %s '%s' (memshim diff --help)\n", what, given);
    return WRONG_CALL;
}

/* The path may hold an '@' of its own: what exists as it is has no moment. -1 where all is well,
 * else the exit status. */
static int take_side(struct call *call, const char *word)
{
    const char *at = strrchr(word, '@');
    struct stat status;
    char why[WHY_BYTES] = "";

    if (call->sides == MS_DIFF_SIDES) {
        return wrong("it compares two, there is a third:", word);
    }

    struct ms_diff_side *side = &call->diff.sides[call->sides];
    char *path = call->paths[call->sides];
    const bool whole = !at || stat(word, &status) == 0;
    const size_t length = whole ? strlen(word) : (size_t)(at - word);

    if (length >= sizeof(call->paths[0])) {
        return wrong("the path is too long:", word);
    }
    memcpy(path, word, length);
    path[length] = '\0';
    side->path = word;
    if (!whole && !ms_moment_parse(at + 1, &side->moment)) {
        return wrong("behind the @ belongs " MS_MOMENT_WORDS ", not", at + 1);
    }
    if (!ms_traces_find(path, &call->traces[call->sides], why, sizeof(why))) {
        (void)fprintf(stderr, "memshim diff: %s\n", why);
        return 1;
    }
    call->sides++;
    return -1;
}

static int take_option(struct call *call, const char *word, const char *next, bool *took_next)
{
    const char *form = ms_cli_value("--format", word, next);
    const char *modules = ms_cli_value("--modules", word, next);
    const char *predict = ms_cli_value("--predict", word, next);

    if (!form && !modules && !predict) {
        return wrong("there is no option", word);
    }
    if (form && strcmp(form, "text") != 0 && strcmp(form, "json") != 0) {
        return wrong("--format is text or json, not", form);
    }
    if (modules && !ms_cli_is_folder(modules)) {
        return wrong("--modules wants a folder, not", modules);
    }
    if (predict && !ms_prediction_parse(predict, &call->diff.prediction)) {
        return wrong("--predict wants a name and its values in A and B, as in batch=8,16, not",
                     predict);
    }
    call->json = form ? strcmp(form, "json") == 0 : call->json;
    call->modules = modules ? modules : call->modules;
    call->diff.predicts |= predict != NULL;
    *took_next = !strchr(word, '=');
    return -1;
}

static int parse(int argc, char **argv, struct call *call)
{
    for (int i = 1; i < argc; i++) {
        const bool option = argv[i][0] == '-' && argv[i][1] != '\0';
        bool took_next = false;
        int status;

        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            (void)fputs(usage, stdout);
            return 0;
        }
        status = option ? take_option(call, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &took_next)
                        : take_side(call, argv[i]);
        if (status >= 0) {
            return status;
        }
        i += took_next;
    }
    if (call->sides < MS_DIFF_SIDES) {
        return wrong("it compares two runs, ranks or moments, and was given",
                     call->sides == 1 ? call->diff.sides[0].path : "none");
    }
    for (size_t i = 0; i < MS_DIFF_SIDES && call->diff.predicts; i++) {
        if (ms_traces_count(&call->traces[i]) > 1) {
            return wrong("--predict is of one process each; name the folder of one rank in",
                         call->diff.sides[i].path);
        }
    }
    return -1;
}

static bool same_trace(const struct call *call)
{
    struct stat a, b;

    return ms_traces_count(&call->traces[MS_DIFF_A]) == 1 &&
           ms_traces_count(&call->traces[MS_DIFF_B]) == 1 &&
           stat(ms_traces_at(&call->traces[MS_DIFF_A], 0), &a) == 0 &&
           stat(ms_traces_at(&call->traces[MS_DIFF_B], 0), &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* When A's moment was, on each device of the one process. */
static bool find_since(const struct call *call, const struct ms_model *model,
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
            (void)snprintf(why, why_bytes, "of two moments of one run the earlier comes first: %s",
                           call->diff.sides[MS_DIFF_A].path);
            return false;
        }
    }
    return true;
}

static bool add_trace(struct call *call, enum ms_diff_side_name side, const char *path)
{
    uint64_t since_ns[MS_DEVICE_COUNT] = {0};
    char why[WHY_BYTES] = "";
    struct ms_model *model = ms_model_new(path, why, sizeof(why));
    const bool since = call->diff.between && side == MS_DIFF_B;
    bool good = model != NULL;

    if (model) {
        ms_model_name_sites(model, MS_STACKS_LINES, call->modules);
        good = (!since || find_since(call, model, since_ns, why, sizeof(why))) &&
               ms_diff_add(&call->diff, side, model, since ? since_ns : NULL, why, sizeof(why));
        ms_model_delete(model);
    }
    if (!good) {
        (void)fprintf(stderr, "memshim diff: %s\n", why);
    }
    return good;
}

static int compare(struct call *call)
{
    struct ms_buffer out = {0};
    bool good = true;
    int error;

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
        (void)fflush(stdout);
        error = !out.failed && !call->diff.rows.failed && !call->diff.match.keys.text.failed
                    ? ms_buffer_write(&out, STDOUT_FILENO)
                    : ENOMEM;
        good = error == 0;
        if (!good) {
            (void)fprintf(stderr, "memshim diff: the standard output cannot be written: %s\n",
                          strerror(error));
        }
    }
    ms_buffer_free(&out);
    return good ? 0 : 1;
}

int ms_cli_diff(int argc, char **argv)
{
    struct call *call = calloc(1, sizeof(*call));
    int status;

    if (!call) {
        (void)fprintf(stderr, "memshim diff: no memory\n");
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
