/* The reader over any bytes: none may crash it, hang it, or make it take memory without bound. One
 * harness: for libFuzzer , and over the committed corpus in every build.
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

#include "report/formats.h"
#include "report/merged.h"
#include "report/model.h"
#include "report/recording.h"
#include "sparse.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes);

static void format_page(const struct ms_model *model, struct ms_buffer *out)
{
    struct ms_merged alone;
    struct ms_page page;

    ms_merged_begin(&alone);
    ms_merged_add(&alone, model);
    ms_page_begin(&page, out, 1);
    ms_page_add(&page, model);
    ms_page_end(&page, &alone);
    ms_merged_free(&alone);
}

static void format_folded(const struct ms_model *model, struct ms_buffer *out)
{
    ms_folded_add(out, model, "");
}

static void report(const char *path)
{
    static void (*const forms[])(const struct ms_model *, struct ms_buffer *) = {
        ms_format_text, ms_format_json, ms_format_timeline, format_folded, format_page,
    };
    char why[PATH_MAX + 512] = "";
    struct ms_model *model = ms_model_new(path, why, sizeof(why));

    if (!model) {
        if (why[0] == '\0') {
            abort(); /* what is refused is refused with a reason */
        }
        return;
    }
    ms_model_name_sites(model, MS_STACKS_NAMES, NULL);
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct ms_buffer out = {0};

        forms[i](model, &out);
        ms_buffer_free(&out);
    }
    ms_model_delete(model);
}

static void record(const char *path)
{
    char why[PATH_MAX + 512] = "";
    struct ms_recording recording;
    struct ms_buffer out = {0};

    if (ms_recording_begin(&recording) &&
        ms_recording_read_trace(&recording, path, -1, why, sizeof(why))) {
        ms_recording_format_csv(&recording, &out);
    }
    ms_buffer_free(&out);
    ms_recording_free(&recording);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    struct ms_buffer trace = {0};
    char path[64];
    const int fd = memfd_create("fuzz_reader", MFD_CLOEXEC);

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (fd >= 0 && sparse_expand(input, bytes, &trace) && ms_buffer_write(&trace, fd) == 0) {
        report(path);
        record(path);
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
