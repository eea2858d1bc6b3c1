/* SPDX-License-Identifier: Apache-2.0 */
/* Removes the oldest runs of an output folder. Folders are opened one below the other, and symbolic
 * links are never followed. */
#include "shim/cli/launch/clean.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/base/buffer.h"
#include "allocator/base/clock.h"
#include "report/read/reader.h"
#include "report/render/formats.h"
#include "report/render/forms.h"
#include "shim/tables/report_handover.h"

#define BLOCK_BYTES 512u /* unit of st_blocks */
#define OPEN_FOR_S  3600
#define WHY_BYTES   (PATH_MAX + 256)
#define OUR_FOLDER  (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* ---- memshim's own names ---- */

static bool begins_and_ends(const char *name, const char *prefix, const char *suffix)
{
    size_t length = strlen(name), before = strlen(prefix), behind = strlen(suffix);
    return length >= before + behind && strncmp(name, prefix, before) == 0 &&
           strcmp(name + length - behind, suffix) == 0;
}

static bool is_ours(const char *name)
{
    for (int form = 0; form < MS_FORM_COUNT; form++) {
        if (ms_form_rows[form].file && strcmp(name, ms_form_rows[form].file) == 0) {
            return true;
        }
    }
    return strcmp(name, MS_TRACE_FILE) == 0 || strcmp(name, MS_REPORT_LOG) == 0 ||
           strcmp(name, MS_PAGE_CARDS) == 0 ||
           begins_and_ends(name, MS_REPORT_LOCK_PREFIX, MS_REPORT_LOCK_SUFFIX);
}

/* ---- a walk over a folder ---- */

/* Calls `each` with the open folder and the name of each entry, until it returns false. False if
 * the folder cannot be read, or `each` returned false. Closes `folder`. */
static bool for_each(int folder, bool (*each)(void *ctx, int folder, const char *name), void *ctx)
{
    DIR *listing = folder >= 0 ? fdopendir(folder) : NULL;
    const struct dirent *entry;
    bool good = listing != NULL;
    while (good && (entry = readdir(listing)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            good = each(ctx, dirfd(listing), entry->d_name);
        }
    }
    if (listing != NULL) {
        (void)closedir(listing);
    } else if (folder >= 0) {
        (void)close(folder);
    }
    return good;
}

/* ---- survey ---- */

struct survey {
    struct ms_clean_run *run;
    const char *process; /* whose folder is read; null: the run's own */
    bool has_trace;
};

static bool may_still_run(const char *path, time_t changed)
{
    char why[WHY_BYTES];
    struct ms_reader *reader = calloc(1, sizeof *reader);
    bool running = reader == NULL;
    if (reader != NULL && ms_reader_open(reader, path, why, sizeof why)) {
        running = reader->running ||
                  (reader->header.state == MS_TRACE_OPEN && time(NULL) - changed < OPEN_FOR_S);
        ms_reader_close(reader);
    }
    free(reader);
    return running;
}

static void add_trace(struct survey *survey, time_t changed)
{
    char path[PATH_MAX];
    struct ms_clean_run *run = survey->run;
    survey->has_trace = true;
    run->changed = changed > run->changed ? changed : run->changed;
    if (snprintf(path, sizeof path, "%s/%s/" MS_TRACE_FILE, run->path, survey->process) >=
            (int)sizeof path ||
        may_still_run(path, changed)) {
        run->stays = true;
    }
}

static bool count_entry(void *ctx, int folder, const char *name)
{
    struct survey *survey = ctx;
    struct stat info;
    if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        return true; /* it vanished meanwhile */
    }
    if (S_ISDIR(info.st_mode) && survey->process == NULL) {
        survey->process = name;
        (void)for_each(openat(folder, name, OUR_FOLDER), count_entry, survey);
        survey->process = NULL;
    } else if (S_ISREG(info.st_mode) && is_ours(name)) {
        survey->run->bytes += (uint64_t)info.st_blocks * BLOCK_BYTES;
        if (survey->process != NULL && strcmp(name, MS_TRACE_FILE) == 0) {
            add_trace(survey, info.st_mtime);
        }
    }
    return true;
}

struct output {
    const char *path;
    struct ms_buffer runs; /* struct ms_clean_run */
};

/* A folder is a run's if a folder inside it has a trace. */
static bool find_run(void *ctx, int folder, const char *name)
{
    struct output *output = ctx;
    struct ms_clean_run run = {0};
    struct survey survey = {.run = &run};
    if (snprintf(run.path, sizeof run.path, "%s/%s", output->path, name) >= (int)sizeof run.path ||
        !for_each(openat(folder, name, OUR_FOLDER), count_entry, &survey) || !survey.has_trace) {
        return true;
    }
    ms_buffer_append(&output->runs, (const char *)&run, sizeof run);
    return true;
}

static int oldest_first(const void *a, const void *b)
{
    const struct ms_clean_run *left = a, *right = b;
    if (left->changed != right->changed) {
        return left->changed < right->changed ? -1 : 1;
    }
    return strcmp(left->path, right->path);
}

/* ---- removal ---- */

static bool remove_ours(void *ctx, int folder, const char *name)
{
    int *error = ctx;
    struct stat info;
    if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        return true;
    }
    if (S_ISREG(info.st_mode) && is_ours(name) && unlinkat(folder, name, 0) != 0 &&
        errno != ENOENT) {
        *error = errno;
    }
    return true;
}

/* Removes one entry of a run's folder: the folder of a process, or a file of the run itself. */
static bool remove_from_run(void *ctx, int folder, const char *name)
{
    int process = openat(folder, name, OUR_FOLDER);
    if (process < 0) {
        return remove_ours(ctx, folder, name);
    }
    (void)for_each(process, remove_ours, ctx);
    (void)unlinkat(folder, name, AT_REMOVEDIR); /* fails if others keep something there */
    return true;
}

/* 0, or an errno. */
static int remove_run(const struct ms_clean_run *run)
{
    int error = 0;
    if (!for_each(open(run->path, OUR_FOLDER), remove_from_run, &error)) {
        return errno;
    }
    (void)rmdir(run->path);
    return error;
}

static bool is_too_old(const struct ms_clean_run *run, const struct ms_keep *keep)
{
    time_t age = time(NULL) - run->changed;
    return keep->age_ns != 0 && age > 0 && (uint64_t)age > keep->age_ns / MS_NS_PER_S;
}

bool ms_clean(const char *output, const struct ms_keep *keep, bool dry,
              void (*removed)(void *ctx, const struct ms_clean_run *run), void *ctx, char *why,
              size_t why_bytes)
{
    struct output found = {.path = output};
    uint64_t bytes = 0;
    bool good = true;
    if (!for_each(open(output, O_RDONLY | O_DIRECTORY | O_CLOEXEC), find_run, &found)) {
        (void)snprintf(why, why_bytes, "%s cannot be read: %s", output, strerror(errno));
        return false;
    }
    struct ms_clean_run *runs = (struct ms_clean_run *)found.runs.at;
    size_t count = found.runs.bytes / sizeof *runs;
    if (count > 1) {
        qsort(runs, count, sizeof *runs, oldest_first);
    }
    for (size_t i = 0; i < count; i++) {
        runs[i].stays = runs[i].stays || i + 1 == count;
        bytes += runs[i].bytes;
    }
    for (size_t i = 0; i < count; i++) {
        bool too_many = keep->bytes != 0 && bytes > keep->bytes;
        if (runs[i].stays || (!too_many && !is_too_old(&runs[i], keep))) {
            continue;
        }
        int error = dry ? 0 : remove_run(&runs[i]);
        if (error != 0) {
            (void)snprintf(why, why_bytes, "%s cannot be removed: %s", runs[i].path,
                           strerror(error));
            good = false;
            continue;
        }
        bytes -= runs[i].bytes;
        if (removed != NULL) {
            removed(ctx, &runs[i]);
        }
    }
    ms_buffer_free(&found.runs);
    return good;
}
