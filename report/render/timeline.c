/* SPDX-License-Identifier: Apache-2.0 */
/* timeline.json: lines over time, ranges and moments in Chrome's trace-event form. */
#include "report/render/formats.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/strings.h"
#include "allocator/base/units.h"
#include "report/model/site_rows.h"
#include "report/model/survey.h"
#include "report/render/forms.h"

struct timeline {
    struct ms_json *json;
    const struct ms_model *model;
    uint64_t offset_ns; /* of the process's time 0 */
    int64_t pid;
};

/* Times of the form are microseconds; three decimals keep the nanoseconds. */
static void add_time(const struct timeline *timeline, uint64_t time_ns)
{
    const uint64_t ns = timeline->offset_ns + time_ns;
    char number[MS_UNIT_TEXT_BYTES];

    snprintf(number, sizeof(number), "%" PRIu64 ".%03" PRIu64, ns / 1000, ns % 1000);
    ms_json_number(timeline->json, "ts", number);
}

static void begin_event(const struct timeline *timeline, const char *name, const char *phase)
{
    ms_json_open(timeline->json, NULL, '{');
    ms_json_text(timeline->json, "name", name);
    ms_json_text(timeline->json, "ph", phase);
    ms_json_integer(timeline->json, "pid", timeline->pid);
}

static void name_row(const struct timeline *timeline, int64_t row, const char *name)
{
    struct ms_json *json = timeline->json;

    begin_event(timeline, "thread_name", "M");
    ms_json_integer(json, "tid", row);
    ms_json_open(json, "args", '{');
    ms_json_text(json, "name", name);
    ms_json_close(json, '}');
    ms_json_close(json, '}');
}

static void add_names(const struct timeline *timeline)
{
    const struct ms_model *model = timeline->model;
    struct ms_json *json = timeline->json;
    const struct ms_file_header *header = &model->header;
    char text[MS_PROGRAM_BYTES + MS_HOST_BYTES + 64];

    if (header->rank >= 0) {
        snprintf(text, sizeof(text), "%s rank %d on %s", header->program, (int)header->rank,
                 header->host);
    } else {
        snprintf(text, sizeof(text), "%s on %s", header->program, header->host);
    }
    begin_event(timeline, "process_name", "M");
    ms_json_open(json, "args", '{');
    ms_json_text(json, "name", text);
    ms_json_close(json, '}');
    ms_json_close(json, '}');
    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        if (!model->devices[i].used) {
            continue;
        }
        snprintf(text, sizeof(text), "device %d %s", i, model->devices[i].name);
        name_row(timeline, i + 1, text);
    }
}

static void add_point(const struct timeline *timeline, int device, uint64_t time_ns,
                      const uint64_t values[MS_LINE_COUNT])
{
    struct ms_json *json = timeline->json;
    static const char *const lines[MS_LINE_COUNT] = {"live", "reserved", "charged", "cap"};
    char name[64];

    for (int line = 0; line < MS_LINE_COUNT; line++) {
        snprintf(name, sizeof(name), "device %d %s", device, lines[line]);
        begin_event(timeline, name, "C");
        add_time(timeline, time_ns);
        ms_json_open(json, "args", '{');
        ms_json_count(json, "bytes", values[line]);
        ms_json_close(json, '}');
        ms_json_close(json, '}');
    }
}

static bool differ(const uint64_t a[MS_LINE_COUNT], const uint64_t b[MS_LINE_COUNT])
{
    for (int line = 0; line < MS_LINE_COUNT; line++) {
        if (a[line] != b[line]) {
            return true;
        }
    }
    return false;
}

/* A bucket is drawn as its lowest, its highest and its last values, so that every change is
 * visible, at the bucket's width. */
static void add_bucket(const struct timeline *timeline, int device, const struct ms_bucket *bucket,
                       uint64_t start_ns, uint64_t width_ns)
{
    if (differ(bucket->min_bytes, bucket->max_bytes)) {
        add_point(timeline, device, start_ns, bucket->min_bytes);
        add_point(timeline, device, start_ns + width_ns / 3, bucket->max_bytes);
        add_point(timeline, device, start_ns + 2 * (width_ns / 3), bucket->last_bytes);
    } else {
        add_point(timeline, device, start_ns, bucket->last_bytes);
    }
}

static void add_counters(const struct timeline *timeline, int device)
{
    const struct ms_model *model = timeline->model;
    const struct ms_series *series = ms_model_series(&model->devices[device]);
    const uint64_t width_ns = UINT64_C(1) << series->shift;
    const struct ms_bucket *last = NULL;

    for (uint32_t i = 0; i < series->used; i++) {
        const struct ms_bucket *bucket = &series->buckets[i];

        if (bucket->samples == 0) {
            continue;
        }
        add_bucket(timeline, device, bucket, i * width_ns, width_ns);
        last = bucket;
    }
    /* The lines continue to the end of the run. */
    if (last && model->duration_ns > (uint64_t)series->used * width_ns) {
        add_point(timeline, device, model->duration_ns, last->last_bytes);
    }
}

/* ---- results of the survey ---- */

static void begin_counter(const struct timeline *timeline, int device, const char *what,
                          uint64_t time_ns)
{
    char name[64];

    (void)snprintf(name, sizeof(name), "device %d %s", device, what);
    begin_event(timeline, name, "C");
    add_time(timeline, time_ns);
    ms_json_open(timeline->json, "args", '{');
}

static void end_counter(struct ms_json *json)
{
    ms_json_close(json, '}');
    ms_json_close(json, '}');
}

/* Kinds are stacked, and together make live memory; memory charged beside is stacked likewise. */
static void add_lines(const struct timeline *timeline, int device, uint64_t time_ns,
                      const uint64_t bytes[MS_SURVEY_LINES], const bool shown[MS_SURVEY_LINES])
{
    static const char *const beside[] = {[MS_SURVEY_HOLES] = "holes",
                                         [MS_SURVEY_FORWARDED] = "forwarded",
                                         [MS_SURVEY_CONTEXT] = "context",
                                         [MS_SURVEY_APPLICATION] = "application"};
    struct ms_json *json = timeline->json;

    begin_counter(timeline, device, "live by kind", time_ns);
    for (int line = 0; line < MS_KIND_COUNT; line++) {
        if (shown[line]) {
            ms_json_count(json, ms_kind_name((enum ms_kind)line), bytes[line]);
        }
    }
    end_counter(json);
    begin_counter(timeline, device, "beside live", time_ns);
    for (int line = MS_KIND_COUNT; line < MS_SURVEY_LINES; line++) {
        ms_json_count(json, beside[line], bytes[line]);
    }
    end_counter(json);
}

static void add_kinds(const struct timeline *timeline, int device)
{
    const struct ms_survey *survey = timeline->model->survey;
    const struct ms_survey_bucket *buckets = survey->devices[device].buckets;
    bool shown[MS_SURVEY_LINES] = {false};

    for (uint32_t i = 0; i < MS_SURVEY_BUCKETS; i++) {
        for (int line = 0; line < MS_KIND_COUNT; line++) {
            shown[line] |= (buckets[i].highest_bytes[line] | buckets[i].last_bytes[line]) != 0;
        }
    }
    for (uint32_t i = 0; i < MS_SURVEY_BUCKETS; i++) {
        const uint64_t end_ns = (i + UINT64_C(1)) * survey->bucket_ns;

        if (buckets[i].highest_ns / survey->bucket_ns == i) {
            add_lines(timeline, device, buckets[i].highest_ns, buckets[i].highest_bytes, shown);
        } else if (i > 0 && memcmp(buckets[i].last_bytes, buckets[i - 1].last_bytes,
                                   sizeof(buckets[i].last_bytes)) == 0) {
            continue; /* nothing happened */
        }
        add_lines(timeline, device, end_ns - 1, buckets[i].last_bytes, shown);
    }
}

#define EARLIER_NS  UINT64_C(3600000000000)
#define SITES_SHOWN 10

/* Lines of code by name: those whose sites held most at one of the moments. */
struct lines {
    struct ms_strings names;
    struct ms_buffer text;
    size_t shown[SITES_SHOWN]; /* numbers of names */
    uint64_t most[SITES_SHOWN];
    size_t count;
};

static size_t line_of(struct lines *lines, const struct ms_model *model, uint32_t site)
{
    lines->text.bytes = 0;
    ms_site_add_line(model, site, &lines->text);
    return ms_strings_add(&lines->names, lines->text.at ? lines->text.at : "", lines->text.bytes,
                          NULL);
}

/* Keeps the largest, in their order. */
static void rank_line(struct lines *lines, size_t name, uint64_t bytes)
{
    size_t at = 0;

    while (at < lines->count && lines->shown[at] != name) {
        at++;
    }
    if (at == lines->count) {
        if (lines->count < SITES_SHOWN) {
            lines->count++;
        } else if (bytes <= lines->most[--at]) {
            return;
        }
        lines->most[at] = 0;
    }
    if (bytes > lines->most[at]) {
        for (; at > 0 && lines->most[at - 1] < bytes; at--) {
            lines->shown[at] = lines->shown[at - 1];
            lines->most[at] = lines->most[at - 1];
        }
        lines->shown[at] = name;
        lines->most[at] = bytes;
    }
}

static void add_sites_then(const struct timeline *timeline, int device, struct lines *lines,
                           const struct ms_survey_moment *moment)
{
    const struct ms_survey_device *survey = &timeline->model->survey->devices[device];
    uint64_t bytes[SITES_SHOWN] = {0}, shown = 0;

    for (size_t i = 0; i < moment->count; i++) {
        const struct ms_holding *holding = ms_survey_holding_at(survey, moment->first + i);
        const size_t name = line_of(lines, timeline->model, holding->site);

        for (size_t k = 0; k < lines->count; k++) {
            if (lines->shown[k] == name) {
                bytes[k] += holding->bytes;
                shown += holding->bytes;
            }
        }
    }
    begin_counter(timeline, device, "live by site", moment->time_ns);
    for (size_t k = 0; k < lines->count; k++) {
        ms_json_count(timeline->json, ms_strings_at(&lines->names, lines->shown[k], NULL),
                      bytes[k]);
    }
    ms_json_count(timeline->json, "all others",
                  moment->live_bytes > shown ? moment->live_bytes - shown : 0);
    end_counter(timeline->json);
}

static void add_sites(const struct timeline *timeline, int device)
{
    const struct ms_survey_device *survey = &timeline->model->survey->devices[device];
    struct lines lines = {.count = 0};

    for (size_t i = 0; i < ms_survey_moment_count(survey); i++) {
        const struct ms_survey_moment *moment = ms_survey_moment_at(survey, i);

        for (size_t k = 0; k < moment->count && k < SITES_SHOWN; k++) {
            const struct ms_holding *holding = ms_survey_holding_at(survey, moment->first + k);

            rank_line(&lines, line_of(&lines, timeline->model, holding->site), holding->bytes);
        }
    }
    for (size_t i = 0; i < ms_survey_moment_count(survey); i++) {
        add_sites_then(timeline, device, &lines, ms_survey_moment_at(survey, i));
    }
    ms_strings_free(&lines.names);
    ms_buffer_free(&lines.text);
}

static void add_survey(const struct timeline *timeline, int device)
{
    const struct ms_survey *survey = timeline->model->survey;

    if (survey && survey->bucket_ns > 0 && survey->devices[device].buckets) {
        add_kinds(timeline, device);
        add_sites(timeline, device);
    }
}

static void begin_instant(const struct timeline *timeline, const char *name, uint64_t device,
                          uint64_t time_ns)
{
    struct ms_json *json = timeline->json;

    begin_event(timeline, name, "i");
    ms_json_count(json, "tid", device + 1);
    add_time(timeline, time_ns);
    ms_json_text(json, "s", "p");
    ms_json_open(json, "args", '{');
}

static void end_instant(struct ms_json *json)
{
    ms_json_close(json, '}');
    ms_json_close(json, '}');
}

static void add_peaks(const struct timeline *timeline, int device)
{
    const struct ms_model *model = timeline->model;
    struct ms_json *json = timeline->json;
    const struct ms_aggregate *sums = &model->devices[device].sums;
    const struct ms_moment live = ms_aggregate_peak_live(sums);

    begin_instant(timeline, "peak of live bytes", (uint64_t)device, live.time_ns);
    ms_json_count(json, "live_bytes", live.live_bytes);
    ms_json_count(json, "reserved_bytes", live.reserved_bytes);
    end_instant(json);
    begin_instant(timeline, "peak of charged bytes", (uint64_t)device, sums->peak_charged.time_ns);
    ms_json_count(json, "charged_bytes", sums->peak_charged.charged_bytes);
    end_instant(json);
}

static void add_ooms(const struct timeline *timeline)
{
    const struct ms_model *model = timeline->model;
    struct ms_json *json = timeline->json;
    for (size_t i = 0; i < ms_model_oom_count(model); i++) {
        const struct ms_model_oom *oom = ms_model_oom_at(model, i);
        char sentence[MS_SENTENCE_BYTES];

        (void)ms_verdict_decide(&oom->record.state, NULL, sentence, sizeof(sentence));
        begin_instant(timeline, "OUT OF MEMORY", oom->device, oom->time_ns);
        ms_json_text(json, "sentence", sentence);
        ms_json_text(json, "verdict", ms_verdict_name(oom->verdict));
        ms_json_count(json, "requested_bytes", oom->record.state.requested_bytes);
        ms_json_count(json, "short_bytes", oom->short_bytes);
        ms_json_flag(json, "recovered", oom->recovered);
        end_instant(json);
    }
}

static void add_thresholds(const struct timeline *timeline)
{
    const struct ms_model *model = timeline->model;
    struct ms_json *json = timeline->json;
    const struct ms_model_threshold *all = (const struct ms_model_threshold *)model->thresholds.at;
    const size_t count = model->thresholds.bytes / sizeof(*all);
    char name[64];

    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "memory %s", ms_threshold_name(all[i].state));
        begin_instant(timeline, name, all[i].device, all[i].time_ns);
        ms_json_count(json, "charged_bytes", all[i].charged_bytes);
        end_instant(json);
    }
}

/* ---- the program's names: its steps, and the tags of each of its threads ---- */

#define STEPS_ROW   99 /* rows 1 to 64 are the devices' */
#define THREADS_ROW 100
#define MOST_ROWS   256                       /* of threads; more share the last one */
#define MOVES_ROW   (THREADS_ROW + MOST_ROWS) /* of device 0; then those of the others */

static void add_span(const struct timeline *timeline, int64_t row, const char *name,
                     uint64_t begin_ns, uint64_t end_ns)
{
    const uint64_t ns = end_ns > begin_ns ? end_ns - begin_ns : 0;
    struct ms_json *json = timeline->json;
    char number[MS_UNIT_TEXT_BYTES];

    begin_event(timeline, name, "X");
    ms_json_integer(json, "tid", row);
    add_time(timeline, begin_ns);
    snprintf(number, sizeof(number), "%" PRIu64 ".%03" PRIu64, ns / 1000, ns % 1000);
    ms_json_number(json, "dur", number);
    ms_json_close(json, '}');
}

/* A span lasts as long as the device stood still, up to the move; spans of a row may not
 * overlap. */
static void add_moves(const struct timeline *timeline)
{
    const struct ms_buffer *moves = &timeline->model->moves;
    const struct ms_model_move *all = (const struct ms_model_move *)moves->at;
    uint64_t ended_ns[MS_DEVICE_COUNT] = {0};
    bool named[MS_DEVICE_COUNT] = {false};
    char name[64], bytes[MS_UNIT_TEXT_BYTES];

    for (size_t i = 0; i < moves->bytes / sizeof(*all); i++) {
        const int device = all[i].device, row = MOVES_ROW + device;
        const uint64_t held_from_ns =
            all[i].time_ns > all[i].held_ns ? all[i].time_ns - all[i].held_ns : 0;
        const uint64_t begin_ns = held_from_ns > ended_ns[device] ? held_from_ns : ended_ns[device];

        if (!named[device]) {
            named[device] = true;
            snprintf(name, sizeof(name), "device %d to host memory and back", device);
            name_row(timeline, row, name);
        }
        snprintf(name, sizeof(name), "%s %s, device %d", all[i].down ? "spill" : "promote",
                 ms_bytes_text(all[i].bytes, bytes, sizeof(bytes)), device);
        add_span(timeline, row, name, begin_ns, all[i].time_ns);
        ended_ns[device] = all[i].time_ns;
    }
}

/* Steps that the program did not report. */
static void add_found_steps(const struct timeline *timeline)
{
    const struct ms_recurrence *found = &timeline->model->recurrence;
    const uint64_t *begins = (const uint64_t *)found->begins.at;
    const size_t count = found->known ? found->begins.bytes / sizeof(*begins) : 0;
    char name[64];

    if (count > 0) {
        name_row(timeline, STEPS_ROW, "steps, found from call sites that recur");
    }
    for (size_t i = 0; i < count; i++) {
        const uint64_t end_ns = i + 1 < count ? begins[i + 1] : timeline->model->duration_ns;

        (void)snprintf(name, sizeof(name), "step %" PRIu64, i * found->every + 1);
        add_span(timeline, STEPS_ROW, name, begins[i], end_ns);
    }
}

/* A step lasts until the next known one. */
static void add_steps(const struct timeline *timeline)
{
    const struct ms_buffer *times = &timeline->model->steps.times;
    const struct ms_model_step *all = (const struct ms_model_step *)times->at;
    const size_t count = times->bytes / sizeof(*all);
    char name[64];

    if (count == 0) {
        add_found_steps(timeline);
        return;
    }
    name_row(timeline, STEPS_ROW, "steps");
    for (size_t i = 0; i < count; i++) {
        const uint64_t end_ns = i + 1 < count ? all[i + 1].time_ns : timeline->model->duration_ns;

        snprintf(name, sizeof(name), "step %" PRIu64, all[i].number);
        add_span(timeline, STEPS_ROW, name, all[i].time_ns, end_ns);
    }
}

/* The row of a thread, named when it first occurs. */
static int64_t row_of(const struct timeline *timeline, uint64_t thread, uint64_t *threads,
                      int *count)
{
    char name[64];

    for (int i = 0; i < *count; i++) {
        if (threads[i] == thread) {
            return THREADS_ROW + i;
        }
    }
    if (*count == MOST_ROWS) {
        return THREADS_ROW + MOST_ROWS - 1;
    }
    threads[(*count)++] = thread;
    snprintf(name, sizeof(name), "tags of thread %" PRIu64, thread);
    name_row(timeline, THREADS_ROW + *count - 1, name);
    return THREADS_ROW + *count - 1;
}

static void add_tags(const struct timeline *timeline)
{
    const struct ms_model *model = timeline->model;
    const struct ms_model_range *all = (const struct ms_model_range *)model->tags.ranges.at;
    uint64_t threads[MOST_ROWS];
    int count = 0;

    for (size_t i = 0; i < model->tags.ranges.bytes / sizeof(*all); i++) {
        const struct ms_tag_read *tag =
            ms_definitions_tag(model->definitions, (uint32_t)all[i].tag);
        const bool ended = all[i].end_ns != UINT64_MAX;

        add_span(timeline, row_of(timeline, all[i].thread, threads, &count),
                 tag ? tag->name : "(a tag that is not known)", all[i].begin_ns,
                 ended ? all[i].end_ns : model->duration_ns);
    }
}

/* Several processes in one timeline: begin, each, end. start_unix_ns: time 0 of the whole. pid: a
 * unique number for each process, because two hosts may have the same one. */
static void begin_timeline(struct ms_json *json, uint64_t start_unix_ns, const char *what)
{
    char date[MS_UNIT_TEXT_BYTES];

    ms_json_open(json, NULL, '{');
    ms_json_text(json, "displayTimeUnit", "ms");
    ms_json_open(json, "otherData", '{');
    ms_json_text(json, "start_time", ms_date_text(start_unix_ns, date, sizeof(date)));
    ms_json_text(json, "command", what);
    ms_json_close(json, '}');
    ms_json_open(json, "traceEvents", '[');
}

static void add_process(struct ms_json *json, const struct ms_model *model, uint64_t start_unix_ns,
                        int64_t pid)
{
    const uint64_t start_ns = ms_model_start_unix_ns(model);
    const struct timeline timeline = {
        .json = json,
        .model = model,
        .offset_ns = start_ns > start_unix_ns ? start_ns - start_unix_ns : 0,
        .pid = pid,
    };

    add_names(&timeline);
    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        if (model->devices[i].used) {
            add_counters(&timeline, i);
            add_survey(&timeline, i);
            add_peaks(&timeline, i);
        }
    }
    add_ooms(&timeline);
    add_thresholds(&timeline);
    add_moves(&timeline);
    add_steps(&timeline);
    add_tags(&timeline);
}

static void end_timeline(struct ms_json *json)
{
    ms_json_close(json, ']');
    ms_json_close(json, '}');
    ms_buffer_add(json->out, "\n");
}

void ms_format_timeline(const struct ms_model *model, struct ms_buffer *out)
{
    struct ms_json json = {.out = out, .dense = true};

    begin_timeline(&json, model->header.start_unix_ns, model->header.command);
    add_process(&json, model, ms_model_start_unix_ns(model), model->header.pid);
    end_timeline(&json);
}

/* Several processes share one clock, from a while before the first began: others may have
 * started before it, and a double cannot hold a date in nanoseconds. Two hosts may have the same
 * pid. */
void ms_form_timeline(struct ms_forms *forms, const struct ms_model *model,
                      const struct ms_merged *merged)
{
    const bool several = forms->expected > 1;

    (void)merged;
    if (!model) {
        end_timeline(&forms->json);
        return;
    }
    if (forms->processes == 0) {
        const uint64_t started_ns = ms_model_start_unix_ns(model);

        forms->start_unix_ns =
            started_ns - (several && started_ns > EARLIER_NS ? EARLIER_NS : UINT64_C(0));
        begin_timeline(&forms->json, forms->start_unix_ns, model->header.command);
    }
    add_process(&forms->json, model, forms->start_unix_ns,
                several ? (int64_t)forms->processes + 1 : model->header.pid);
}
