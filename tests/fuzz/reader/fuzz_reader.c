/* The reader over any bytes: none may crash it, hang it, or make it take memory without bound. One
 * harness: for libFuzzer (CMakeLists.txt), and over the committed corpus in every build.
 *
 *   fuzz_reader FILE|FOLDER...          every form of a report of each
 *   fuzz_reader --squeeze TRACE OUTPUT  one more for the corpus (sparse.h) */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report/cli_forms.h"
#include "report/merged.h"
#include "report/model.h"
#include "report/what_if.h"
#include "sparse.h"

#define MOST_OPERATIONS 2000 /* of a replay: it is not what is tried here */

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes);

static void write_form(const struct ms_model *model, enum ms_form form)
{
    const struct ms_form_choice choice = {.device = -1};
    struct ms_merged alone;
    struct ms_forms forms;

    ms_forms_begin(&forms, form, 1, &choice);
    ms_forms_take(&forms, model);
    ms_merged_begin(&alone);
    ms_merged_add(&alone, model);
    (void)ms_forms_end(&forms, &alone);
    ms_forms_free(&forms);
    ms_merged_free(&alone);
}

static void report(const char *path)
{
    char why[PATH_MAX + 512] = "";
    struct ms_model *model = ms_model_new(path, why, sizeof(why));

    if (!model) {
        if (why[0] == '\0') {
            abort(); /* what is refused is refused with a reason */
        }
        return;
    }
    ms_model_name_sites(model, MS_STACKS_NAMES, NULL);
    ms_model_survey(model, MS_SURVEY_WHOLE);
    ms_what_if_try(model, MOST_OPERATIONS);
    for (int form = 0; form < MS_FORM_COUNT; form++) {
        write_form(model, (enum ms_form)form);
    }
    ms_model_delete(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    struct ms_buffer trace = {0};
    char path[64];
    const int fd = memfd_create("fuzz_reader", MFD_CLOEXEC);

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (fd >= 0 && sparse_expand(input, bytes, &trace) && ms_buffer_write(&trace, fd) == 0) {
        report(path);
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
    for (int i = 1; i < argc; i++) {
        const int count = run_folder(argv[i]);

        if (count < 0) {
            return 1;
        }
        inputs += count;
    }
    (void)printf("%d inputs\n", inputs);
    return inputs > 0 ? 0 : 1;
}

#endif
