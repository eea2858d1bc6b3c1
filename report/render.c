#include "report/render.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "report/formats.h"
#include "report/model.h"
#include "report/reader.h"
#include "report/report_files.h"
#include "report/units.h"

/* Nobody waits longer for the end of a job than for its work: what is read twice, and written, in
 * less than a second (tests/bench/reports.py). On a slower core the first of the two readings
 * tells, after which there are as much again and the writing to come. */
#define QUICK_BYTES      (UINT64_C(24) << 20)
#define QUICK_NS         UINT64_C(450000000)
#define QUICK_OPERATIONS (MS_WHAT_IF_OPERATIONS / 4)

static bool save(const struct ms_model *model, const char *name,
                 void (*format)(const struct ms_model *, struct ms_buffer *), char *why,
                 size_t why_bytes)
{
    struct ms_buffer out = {0};
    char path[PATH_MAX], reason[128];
    int error = ENAMETOOLONG;

    if (snprintf(path, sizeof(path), "%s/%s", model->dir, name) < (int)sizeof(path)) {
        format(model, &out);
        error = ms_buffer_save(&out, path);
    }
    if (error) {
        snprintf(why, why_bytes, "%s/%s cannot be written: %s", model->dir, name,
                 strerror_r(error, reason, sizeof(reason)));
    }
    ms_buffer_free(&out);
    return error == 0;
}

bool ms_report_save(const struct ms_model *model, char *why, size_t why_bytes)
{
    return save(model, MS_REPORT_TIMELINE, ms_format_timeline, why, why_bytes) &&
           save(model, MS_REPORT_JSON, ms_format_json, why, why_bytes) &&
           save(model, MS_REPORT_TEXT, ms_format_text, why, why_bytes);
}

/* Of this thread: a job that shares its cores with others is not left without a report for that. */
static uint64_t spent_ns(void)
{
    struct timespec spent;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return (uint64_t)spent.tv_sec * UINT64_C(1000000000) + (uint64_t)spent.tv_nsec;
}

/* Null where it takes longer than a first reading may. */
static struct ms_model *read_quickly(const char *dir, char *why, size_t why_bytes)
{
    const uint64_t begin_ns = spent_ns();
    struct ms_model *model = ms_model_new(dir, why, why_bytes);

    if (model && spent_ns() - begin_ns > QUICK_NS) {
        (void)snprintf(why, why_bytes,
                       "%s takes too long to read at the end of a run: memshim report %s",
                       model->path, dir);
        ms_model_delete(model);
        model = NULL;
    }
    return model;
}

static bool is_quick(const char *dir, char *why, size_t why_bytes)
{
    char path[PATH_MAX], size[MS_UNIT_TEXT_BYTES];
    struct ms_reader *reader =
        mmap(NULL, sizeof(*reader), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool quick = false;

    if (reader == MAP_FAILED) {
        snprintf(why, why_bytes, "%s: no memory to read it", dir);
        return false;
    }
    snprintf(path, sizeof(path), "%s/%s", dir, MS_TRACE_FILE);
    if (ms_reader_open(reader, path, why, why_bytes)) {
        const uint64_t bytes = ms_reader_record_bytes(reader);

        quick = bytes <= QUICK_BYTES;
        if (!quick) {
            snprintf(why, why_bytes,
                     "%s holds %s of records, which takes too long to read at the end of a run: "
                     "memshim report %s",
                     path, ms_bytes_text(bytes, size, sizeof(size)), dir);
        }
        ms_reader_close(reader);
    }
    munmap(reader, sizeof(*reader));
    return quick;
}

int ms_report_write(const char *dir, char *why, size_t why_bytes)
{
    struct ms_model *model;
    const int saved = errno;
    bool written = false;

    if (!is_quick(dir, why, why_bytes)) {
        errno = saved;
        return -1;
    }
    model = read_quickly(dir, why, why_bytes);
    if (model) {
        ms_model_name_sites(model, MS_STACKS_NAMES, NULL);
        ms_model_survey(model, MS_SURVEY_SUMS);
        ms_what_if_try(model, QUICK_OPERATIONS);
        written = ms_report_save(model, why, why_bytes);
        ms_model_delete(model);
    }
    errno = saved;
    return written ? 0 : -1;
}
