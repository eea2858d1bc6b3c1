/* SPDX-License-Identifier: Apache-2.0 */
/* The reader over any bytes: none may crash it, hang it, or make it take memory without bound. One
 * harness: for libFuzzer (CMakeLists.txt), and over the committed corpus in every build.
 *
 *   fuzz_reader FILE|FOLDER...          every form of a report of each, its diff with itself, and
 *                                       its replay; fails where half of them have no event that can
 *                                       be read
 *   fuzz_reader --squeeze TRACE OUTPUT  one more for the corpus (sparse.h)
 *   fuzz_reader --spread FILE FOLDER    the input once for each form, for libFuzzer
 *
 * Of libFuzzer: -max_len=32000 -close_fd_mask=2, over a folder that --spread has filled from the
 * corpus: an input draws one form then (sparse.h), which makes a run several times as fast. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report/model/model.h"
#include "report/model/reading/read_model.h"
#include "report/model/survey/take.h"
#include "report/model/verdict/what_if.h"
#include "report/render/commands/diff.h"
#include "report/render/commands/replay.h"
#include "report/render/forms.h"
#include "report/render/merged/merged.h"
#include "sparse.h"

#define MOST_OPERATIONS 200 /* of a replay: it is not what is tried here */
#define PAGE_BYTES      4096u
#define REPLAY_BYTES    (UINT64_C(64) << 20)

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes);

/* What an input may draw: a form, or else one of the two comparisons, or a replay. */
enum draw { DRAW_DIFF = MS_FORM_COUNT, DRAW_SINCE, DRAW_REPLAY, DRAW_COUNT };

static bool draws(unsigned drawn, unsigned what)
{
    return drawn == SPARSE_DRAW_ALL || (drawn - 1) % DRAW_COUNT == what;
}

static void write_forms(const struct ms_model *model, unsigned drawn)
{
    const struct ms_form_choice choice = {.device = -1};
    struct ms_merged alone;

    ms_merged_begin(&alone);
    ms_merged_add(&alone, model);
    for (unsigned form = 0; form < MS_FORM_COUNT; form++) {
        struct ms_forms forms;

        if (draws(drawn, form)) {
            ms_forms_begin(&forms, (enum ms_form)form, 1, &choice);
            ms_forms_take(&forms, model);
            (void)ms_forms_end(&forms, &alone);
            ms_forms_free(&forms);
        }
    }
    ms_merged_free(&alone);
}

/* between: two moments of the one run, so that B tells what was born since A. */
static void compare(const struct ms_model *model, bool between)
{
    const uint64_t since_ns[MS_DEVICE_COUNT] = {0};
    struct ms_diff diff = {.between = between};
    struct ms_buffer out = {0};
    char why[PATH_MAX + 512] = "";
    bool good = true;

    diff.predicts = !between && ms_prediction_parse("batch=1,2", &diff.prediction);
    for (int side = 0; side < MS_DIFF_SIDES && good; side++) {
        diff.sides[side].path = model->path;
        diff.sides[side].moment.word = between && side == MS_DIFF_B ? MS_AT_END : MS_AT_PEAK;
        good = ms_diff_add(&diff, (enum ms_diff_side_name)side, model,
                           between && side == MS_DIFF_B ? since_ns : NULL, why, sizeof(why));
    }
    if (good) {
        ms_diff_sort(&diff);
        ms_diff_text(&diff, &out);
        ms_diff_json(&diff, &out);
    }
    ms_buffer_free(&out);
    ms_diff_free(&diff);
}

/* Under a cap that keeps the replay short: what is absurd in it is refused. */
static void replay(const char *path)
{
    struct ms_recording recording;
    struct ms_call_costs costs = {0};
    struct ms_replay_config config = {.cap_bytes = REPLAY_BYTES,
                                      .device_bytes = REPLAY_BYTES,
                                      .host_limit_bytes = REPLAY_BYTES,
                                      .charges = true,
                                      .checked = true,
                                      .costs = &costs};
    struct ms_replay_result result;
    const struct ms_replay_answer answer = {
        .trace = path, .recording = &recording, .config = &config, .result = &result};
    struct ms_buffer out = {0};
    char why[PATH_MAX + 512] = "";

    if (ms_recording_begin(&recording) && ms_call_costs_default(&costs) &&
        ms_recording_read_trace(&recording, path, -1, why, sizeof(why))) {
        for (int mode = MS_REPLAY_NATIVE; mode <= MS_REPLAY_TENSOR; mode++) {
            config.mode = (enum ms_replay_mode)mode;
            ms_replay_run(&recording, &config, &result);
            ms_replay_text(&answer, &out);
            ms_replay_json(&answer, &out);
        }
    } else if (why[0] == '\0') {
        abort();
    }
    ms_buffer_free(&out);
    ms_recording_free(&recording);
    ms_call_costs_free(&costs);
}

static bool wants_survey(unsigned drawn)
{
    for (unsigned form = 0; form < MS_FORM_COUNT; form++) {
        if (draws(drawn, form) && ms_form_has((enum ms_form)form, MS_FORM_SURVEY)) {
            return true;
        }
    }
    return false;
}

static unsigned with_events; /* inputs: the rest try no more than the reader's refusals */

static void report(const char *path, unsigned drawn)
{
    char why[PATH_MAX + 512] = "";
    struct ms_model *model = ms_model_new(path, why, sizeof(why));

    if (!model) {
        if (why[0] == '\0') {
            abort(); /* what is refused is refused with a reason */
        }
        return;
    }
    with_events += model->read_events > 0;
    ms_model_name_sites(model, MS_STACKS_NAMES, NULL);
    if (wants_survey(drawn)) {
        ms_what_if_expect(model, MOST_OPERATIONS);
        ms_model_survey(model, MS_SURVEY_WHOLE);
        ms_what_if_try(model, MOST_OPERATIONS);
    }
    write_forms(model, drawn);
    if (draws(drawn, DRAW_DIFF)) {
        compare(model, false);
    }
    if (draws(drawn, DRAW_SINCE)) {
        compare(model, true);
    }
    if (draws(drawn, DRAW_REPLAY)) {
        replay(path);
    }
    ms_model_delete(model);
}

/* Only pages that hold something: a trace is mostly holes. */
static bool write_pages(const struct ms_buffer *trace, int fd)
{
    static const char nothing[PAGE_BYTES];
    bool written = ftruncate(fd, (off_t)trace->bytes) == 0;

    for (size_t at = 0; at < trace->bytes && written; at += PAGE_BYTES) {
        const size_t left = trace->bytes - at;
        const size_t bytes = left < PAGE_BYTES ? left : PAGE_BYTES;

        written = memcmp(trace->at + at, nothing, bytes) == 0 ||
                  pwrite(fd, trace->at + at, bytes, (off_t)at) == (ssize_t)bytes;
    }
    return written;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    struct ms_buffer trace = {0};
    char path[64];
    const int fd = memfd_create("fuzz_reader", MFD_CLOEXEC);

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (fd >= 0 && sparse_expand(input, bytes, &trace) && write_pages(&trace, fd)) {
        report(path, bytes > 0 ? input[0] / SPARSE_DRAW : SPARSE_DRAW_ALL);
    }
    ms_buffer_free(&trace);
    if (fd >= 0) {
        close(fd);
    }
    return 0;
}

#ifndef FUZZ_READER_LIBFUZZER

static bool read_file(const char *path, struct ms_buffer *out)
{
    FILE *file = fopen(path, "rbe");
    char part[4096];
    size_t got = 0;

    while (file && (got = fread(part, 1, sizeof(part), file)) > 0) {
        ms_buffer_append(out, part, got);
    }
    if (!file || fclose(file) != 0) {
        perror(path);
        return false;
    }
    return !out->failed;
}

static int squeeze(const char *from, const char *to)
{
    struct ms_buffer trace = {0}, output = {0};
    int status = 1;

    if (read_file(from, &trace)) {
        sparse_squeeze(&trace, SPARSE_HEADER | SPARSE_EXTENTS | SPARSE_PAYLOADS, &output);
        status = ms_buffer_save(&output, to) == 0 ? 0 : 1;
    }
    ms_buffer_free(&trace);
    ms_buffer_free(&output);
    return status;
}

static int spread(const char *from, const char *folder)
{
    const char *slash = strrchr(from, '/'), *name = slash ? slash + 1 : from;
    struct ms_buffer input = {0};
    bool good = read_file(from, &input) && input.bytes > 0;

    for (unsigned drawn = 1; drawn <= DRAW_COUNT && good; drawn++) {
        char path[PATH_MAX];

        input.at[0] = (char)((uint8_t)input.at[0] % SPARSE_DRAW + drawn * SPARSE_DRAW);
        good = snprintf(path, sizeof(path), "%s/%s-%u", folder, name, drawn) < PATH_MAX &&
               ms_buffer_save(&input, path) == 0;
    }
    ms_buffer_free(&input);
    return good ? 0 : 1;
}

/* How many inputs were read; -1 where one could not be. */
static int run_file(const char *path)
{
    struct ms_buffer input = {0};
    const bool read = read_file(path, &input);

    if (read) {
        (void)LLVMFuzzerTestOneInput((const uint8_t *)input.at, input.bytes);
    }
    ms_buffer_free(&input);
    return read ? 1 : -1;
}

static int run_folder(const char *path)
{
    DIR *folder = opendir(path);
    int count = 0;

    if (!folder) {
        return run_file(path);
    }
    for (const struct dirent *entry; count >= 0 && (entry = readdir(folder));) {
        char file[PATH_MAX];

        if (entry->d_name[0] != '.' &&
            snprintf(file, sizeof(file), "%s/%s", path, entry->d_name) < (int)sizeof(file)) {
            count = run_file(file) < 0 ? -1 : count + 1;
        }
    }
    (void)closedir(folder);
    return count;
}

int main(int argc, char **argv)
{
    int inputs = 0;

    if (argc == 4 && strcmp(argv[1], "--squeeze") == 0) {
        return squeeze(argv[2], argv[3]);
    }
    if (argc == 4 && strcmp(argv[1], "--spread") == 0) {
        return spread(argv[2], argv[3]);
    }
    for (int i = 1; i < argc; i++) {
        const int count = run_folder(argv[i]);

        if (count < 0) {
            return 1;
        }
        inputs += count;
    }
    (void)printf("%d inputs, %u of them with events\n", inputs, with_events);
    /* A corpus of another format would pass, and try nothing: make_corpus.py makes it anew. */
    return inputs > 0 && with_events >= (unsigned)inputs / 2 ? 0 : 1;
}

#endif
