/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the records a second time, and passes each event to the samplers, the map and the
 * recorder. */
#include "report/model/survey/take.h"

#include <stdlib.h>
#include <string.h>

#include "report/model/survey.h"
#include "report/model/survey/map.h"
#include "report/model/survey/state.h"
#include "report/read/progress.h"
#include "report/read/reader.h"
#include "report/replay/recorder.h"
#include "report/trace/records.h"

struct survey_pass {
    const struct ms_model *model;
    struct ms_survey *survey;
    struct ms_reader *reader;
    struct ms_codec *codec;
    struct ms_live_set live;
    struct ms_sampler samplers[MS_DEVICE_COUNT];
    struct ms_map *map;           /* null: maps are not wanted */
    struct ms_recorder *recorder; /* null: no recording is wanted */
    uint64_t read_events;
    struct ms_rounds rounds;
    uint32_t allocations;
    uint64_t event;                      /* the number of the next one */
    const struct ms_growth_clock *clock; /* of all samplers; null: there are none */
    size_t next_step;                    /* in the clock */
    size_t next_oom;
};

/* Null: the model does not have the device, or memory ran out. */
static struct ms_sampler *sampler_of(struct survey_pass *pass, unsigned device)
{
    struct ms_sampler *sampler = &pass->samplers[device % MS_DEVICE_COUNT];

    return sampler->sites ? sampler : NULL;
}

/* ---- steps ---- */

static void note_ages(struct survey_pass *pass)
{
    for (unsigned i = 0; i < MS_DEVICE_COUNT; i++) {
        struct ms_sampler *sampler = sampler_of(pass, i);

        if (sampler) {
            ms_sampler_note_ages(sampler, &pass->live);
        }
    }
}

/* Samples all devices where steps have begun before the event of this number, or with it. The place
 * of one whose record is gone, or of a part of the time, is known by its time alone. */
static void pass_steps(struct survey_pass *pass, uint64_t event, uint64_t time_ns)
{
    const struct ms_growth_clock *clock = pass->clock;

    while (clock && pass->next_step < clock->count &&
           (clock->event[pass->next_step] != 0 ? clock->event[pass->next_step] <= event
                                               : clock->time_ns[pass->next_step] <= time_ns)) {
        for (unsigned i = 0; i < MS_DEVICE_COUNT; i++) {
            struct ms_sampler *sampler = sampler_of(pass, i);

            if (sampler) {
                ms_sampler_step(sampler);
            }
        }
        pass->next_step++;
        if (pass->next_step == clock->count) {
            note_ages(pass);
        }
    }
}

/* ---- out-of-memories ---- */

static void note_oom(struct survey_pass *pass, size_t index)
{
    const struct ms_model_oom *oom = ms_model_oom_at(pass->model, index);
    struct ms_survey_oom *to = (struct ms_survey_oom *)pass->survey->ooms.at + index;
    struct ms_sampler *sampler = sampler_of(pass, (unsigned)oom->device);

    if (!sampler) {
        return;
    }
    pass_steps(pass, 0, oom->time_ns);
    ms_sampler_pass(sampler, pass->survey->bucket_ns, oom->time_ns);
    to->known = true;
    memcpy(to->kind_bytes, sampler->kind_bytes, sizeof(to->kind_bytes));
    if (oom == ms_model_fatal_oom(pass->model)) {
        ms_sampler_note_kept(sampler, &pass->live, oom->time_ns);
        ms_sampler_note_fatal(sampler, oom->record.state.requested_bytes);
    }
    if (index + MS_SURVEY_OOMS >= ms_model_oom_count(pass->model)) {
        ms_sampler_moment(sampler, MS_MOMENT_OOM, oom->time_ns, index);
    }
}

/* Handles out-of-memories that came before the event of this number. */
static void pass_ooms(struct survey_pass *pass, uint64_t event)
{
    while (pass->next_oom < pass->survey->ooms.bytes / sizeof(struct ms_survey_oom) &&
           ms_model_oom_at(pass->model, pass->next_oom)->event <= event) {
        note_oom(pass, pass->next_oom);
        pass->next_oom++;
    }
}

/* ---- records ---- */

/* Notes pins the first time that live bytes reach their peak. */
static void note_pins(struct survey_pass *pass, const struct ms_sampler *sampler, uint64_t time_ns)
{
    const struct ms_aggregate *sums = &pass->model->devices[sampler->device].sums;

    if (!sampler->to->pins && sampler->live_bytes == ms_aggregate_peak_live(sums).live_bytes) {
        sampler->to->pins = ms_map_pins(pass->map, &pass->live, sampler->device, time_ns);
    }
}

static void note_torch(struct ms_sampler *sampler)
{
    const struct ms_counters *now = &sampler->sums.now;
    uint64_t *most = &sampler->to->most_torch_bytes;

    *most =
        now->arena_bytes + now->proxy_bytes > *most ? now->arena_bytes + now->proxy_bytes : *most;
}

static void take_event(struct survey_pass *pass, const struct ms_event *event, uint64_t time_ns)
{
    struct ms_sampler *sampler = sampler_of(pass, event->device);
    uint32_t allocation = 0;

    pass_ooms(pass, pass->event);
    pass_steps(pass, pass->event, time_ns);
    pass->event++;
    pass->read_events++;
    if (pass->recorder) {
        ms_recorder_event(pass->recorder, event, time_ns);
    }
    if (event->kind == MS_EVENT_BLOCK_ALLOC || event->kind == MS_EVENT_TENSOR_ALLOC) {
        allocation = pass->allocations++;
        if (ms_site_table_recorded(pass->model->sites, allocation) != MS_RECORDED_ARENA) {
            ms_rounds_allocation(&pass->rounds, pass->model, event->site);
        }
    }
    if (!sampler || !ms_event_has_device(event)) {
        return;
    }
    ms_sampler_pass(sampler, pass->survey->bucket_ns, time_ns);
    if (pass->map) {
        ms_map_pass(pass->map, pass->survey, &pass->live, time_ns);
        ms_map_take(pass->map, event,
                    ms_site_table_recorded(pass->model->sites, allocation) == MS_RECORDED_ARENA);
    }
    switch (event->kind) {
    case MS_EVENT_BLOCK_ALLOC:
    case MS_EVENT_TENSOR_ALLOC:
        ms_sampler_alloc(sampler, &pass->live, event, allocation, time_ns);
        if (pass->map) {
            note_pins(pass, sampler, time_ns);
        }
        break;
    case MS_EVENT_BLOCK_FREE:
    case MS_EVENT_TENSOR_FREE:
        ms_sampler_free(sampler, &pass->live, event, time_ns);
        break;
    case MS_EVENT_GIVEN_BACK:
        ms_sampler_given_back(sampler, event);
        break;
    case MS_EVENT_WAITS:
        ms_sampler_waits(sampler, event->bytes, time_ns);
        break;
    default:
        ms_sampler_note_highest(sampler);
        break;
    }
    ms_aggregate_apply(&sampler->sums, event, time_ns);
    note_torch(sampler);
}

static void take_bases(struct survey_pass *pass)
{
    const struct ms_extent_header *header = (const struct ms_extent_header *)pass->reader->extent;
    const struct ms_base *base = (const struct ms_base *)(header + 1);

    for (uint32_t i = 0; i < header->base_count; i++) {
        struct ms_sampler *sampler =
            base[i].device < MS_DEVICE_COUNT ? sampler_of(pass, (unsigned)base[i].device) : NULL;

        if (sampler) {
            pass_steps(pass, 0, header->start_time_ns);
            ms_sampler_pass(sampler, pass->survey->bucket_ns, header->start_time_ns);
            ms_sampler_rebase(sampler, &pass->live, &base[i].sums);
        }
    }
}

/* Adds memory that was live when the records begin, if a digest has it. */
static void adopt(struct survey_pass *pass)
{
    const struct ms_buffer *all = &pass->model->digest_live;

    for (size_t i = 0; i < all->bytes / sizeof(struct ms_live); i++) {
        const struct ms_live *live = (const struct ms_live *)all->at + i;
        struct ms_sampler *sampler = sampler_of(pass, live->device);

        if (sampler) {
            ms_sampler_adopt(sampler, &pass->live, live);
            ms_rounds_begin(&pass->rounds, live->born_phase);
        }
    }
}

/* The digest knows the holders at some moments whose records are gone. */
static void read_digest(struct survey_pass *pass)
{
    const struct ms_digest_moments *moments = &pass->model->digest_moments;
    const struct ms_digest_moment *all = (const struct ms_digest_moment *)moments->heads.at;
    const struct ms_digest_holding *holdings =
        (const struct ms_digest_holding *)moments->holdings.at;
    const size_t ooms = ms_model_oom_count(pass->model);

    for (size_t i = 0; i < moments->heads.bytes / sizeof(*all); i++) {
        struct ms_sampler *sampler = sampler_of(pass, all[i].device);

        if (!sampler) {
            continue;
        }
        pass_steps(pass, 0, all[i].time_ns);
        ms_sampler_pass(sampler, pass->survey->bucket_ns, all[i].time_ns);
        ms_sampler_hold(sampler, holdings + all[i].first, all[i].count, all[i].time_ns);
        for (size_t oom = pass->next_oom; oom < ooms && all[i].oom; oom++) {
            const struct ms_model_oom *is = ms_model_oom_at(pass->model, oom);

            if (is->event == all[i].event && is->device == all[i].device) {
                note_oom(pass, oom);
                pass->next_oom = oom + 1;
                break;
            }
        }
    }
    while (pass->next_oom < ooms &&
           ms_model_oom_at(pass->model, pass->next_oom)->event < pass->model->digest_events) {
        pass->next_oom++;
    }
}

static struct ms_extent_place *find_place(struct survey_pass *pass, uint64_t sequence, size_t *from)
{
    const struct ms_buffer *windows = &pass->reader->windows;

    for (size_t i = *from; i < ms_reader_count(windows); i++) {
        if (ms_reader_place(windows, i)->sequence == sequence) {
            *from = i + 1;
            return ms_reader_place(windows, i);
        }
    }
    return NULL;
}

/* Reads the records of the window that the model has read. A window that was recycled since is left
 * out, and the state stays as it was. */
static void read_window(struct survey_pass *pass, const struct ms_model_window *window,
                        struct ms_extent_place *place)
{
    const struct ms_extent_header *header = (const struct ms_extent_header *)pass->reader->extent;

    if (!ms_reader_load(pass->reader, place) || header->first_event != window->first_event) {
        return;
    }

    struct ms_records records = ms_records_begin(pass->codec, header, place->committed_bytes);
    struct ms_event event;
    uint64_t time_ns;

    if (window->after_gap) {
        take_bases(pass);
        if (window->first_event == pass->model->digest_events) {
            adopt(pass);
        }
    }
    while (records.count < window->count && ms_records_next(&records, &event, &time_ns)) {
        take_event(pass, &event, time_ns);
    }
}

/* With a live writer: these events, and maybe more, have been packed since. */
static void read_tail(struct survey_pass *pass, const struct ms_model_window *window)
{
    for (uint32_t i = 0; i < window->count && !pass->reader->running; i++) {
        const uint64_t number = window->first_event + i;
        const struct ms_timed_event *timed =
            number >= pass->reader->tail_first && number < pass->reader->tail_end
                ? ms_reader_tail(pass->reader, number)
                : NULL;

        if (timed) {
            take_event(pass, &timed->event, timed->time_ns);
        }
    }
}

static void read_windows(struct survey_pass *pass)
{
    const struct ms_model_window *all = (const struct ms_model_window *)pass->model->windows.at;
    size_t from = 0;

    for (size_t i = 0; i < pass->model->windows.bytes / sizeof(*all); i++) {
        struct ms_extent_place *place =
            all[i].sequence ? find_place(pass, all[i].sequence, &from) : NULL;

        ms_progress_note("looking again", i, pass->model->windows.bytes / sizeof(*all));
        pass->allocations = all[i].allocations;
        pass->event = all[i].first_event;
        if (place) {
            read_window(pass, &all[i], place);
        } else if (all[i].sequence == 0) {
            read_tail(pass, &all[i]);
        }
    }
}

/* ---- the whole ---- */

static int by_count(const void *a, const void *b)
{
    const struct ms_temporary *left = a, *right = b;

    if (left->count != right->count) {
        return left->count > right->count ? -1 : 1;
    }
    return left->site < right->site ? -1 : left->site > right->site;
}

static void list_temporaries(const struct ms_sampler *sampler)
{
    struct ms_survey_device *to = sampler->to;
    struct ms_buffer all = {0};

    for (uint32_t id = 0; id < sampler->site_count; id = ms_sampler_next(sampler, id)) {
        const struct ms_sampled_site *site = &sampler->sites[id];
        const struct ms_temporary row = {.site = id,
                                         .count = site->temporaries,
                                         .bytes = site->temporary_bytes,
                                         .lifetime_ns = site->temporary_ns};

        if (row.count > 0) {
            ms_buffer_append(&all, (const char *)&row, sizeof(row));
        }
    }
    to->temporary_count = all.bytes / sizeof(struct ms_temporary);
    if (to->temporary_count > 0) {
        qsort(all.at, to->temporary_count, sizeof(struct ms_temporary), by_count);
    }
    to->temporary_count =
        to->temporary_count < MS_SURVEY_TEMPORARIES ? to->temporary_count : MS_SURVEY_TEMPORARIES;
    if (to->temporary_count > 0) {
        memcpy(to->temporaries, all.at, to->temporary_count * sizeof(struct ms_temporary));
    }
    ms_buffer_free(&all);
}

static bool begin_devices(struct survey_pass *pass, enum ms_survey_depth depth)
{
    for (unsigned i = 0; i < MS_DEVICE_COUNT; i++) {
        struct ms_survey_device *to = &pass->survey->devices[i];

        if (!pass->model->devices[i].used) {
            continue;
        }
        to->buckets = calloc(MS_SURVEY_BUCKETS, sizeof(*to->buckets));
        if (!to->buckets || !ms_sampler_begin(&pass->samplers[i], pass->model, (uint8_t)i, to)) {
            return false;
        }
        to->used = true;
        pass->samplers[i].rounds = &pass->rounds;
        pass->rounds.hides_tensors = ms_model_hides_tensors(pass->model);
        ms_survey_set_clock(pass->model, &to->growth);
        pass->clock = &to->growth.clock;
        if (depth == MS_SURVEY_PREDICTING) {
            ms_sampler_choose_turns(&pass->samplers[i]);
        }
    }
    return ms_model_oom_count(pass->model) == 0 ||
           ms_buffer_extend(&pass->survey->ooms,
                            ms_model_oom_count(pass->model) * sizeof(struct ms_survey_oom));
}

static void finish(struct survey_pass *pass)
{
    pass_ooms(pass, UINT64_MAX);
    pass_steps(pass, UINT64_MAX, pass->model->duration_ns);
    if (pass->map) {
        ms_map_pass(pass->map, pass->survey, &pass->live, UINT64_MAX);
    }
    for (unsigned i = 0; i < MS_DEVICE_COUNT; i++) {
        struct ms_sampler *sampler = sampler_of(pass, i);

        if (sampler) {
            ms_sampler_finish(sampler, pass->survey->bucket_ns);
            ms_survey_judge_growth(sampler);
            ms_survey_judge_headroom(sampler);
            list_temporaries(sampler);
            ms_sampler_list_emptyings(sampler);
        }
    }
}

static void begin_recording(struct survey_pass *pass)
{
    if (pass->model->recording && pass->model->recording->events == 0) {
        pass->recorder = ms_recorder_new(pass->model->recording);
    }
    if (pass->recorder) {
        ms_recorder_log(pass->recorder, pass->reader);
    }
}

static void end_recording(struct survey_pass *pass)
{
    if (pass->recorder) {
        pass->survey->recorded = ms_recorder_end(pass->recorder, &pass->reader->header) &&
                                 pass->read_events == pass->model->read_events &&
                                 pass->model->recording->events > 0;
    }
    ms_recorder_delete(pass->recorder);
}

static bool run(struct survey_pass *pass, enum ms_survey_depth depth)
{
    char why[PATH_MAX + 512];
    bool read = false;

    if (begin_devices(pass, depth) &&
        ms_reader_open(pass->reader, pass->model->path, why, sizeof(why))) {
        /* Another run's trace may have replaced it. */
        read = pass->reader->header.trace_id == pass->model->header.trace_id;
        if (read && pass->map) {
            ms_map_choose(pass->model, pass->survey);
        }
        if (read) {
            begin_recording(pass);
            read_digest(pass);
            read_windows(pass);
            finish(pass);
            end_recording(pass);
        }
        ms_reader_close(pass->reader);
    }
    for (unsigned i = 0; i < MS_DEVICE_COUNT; i++) {
        ms_sampler_end(&pass->samplers[i]);
    }
    ms_live_free(&pass->live);
    return read;
}

/* Null: there is no memory, or the trace is no longer readable. */
static struct ms_survey *take(const struct ms_model *model, enum ms_survey_depth depth)
{
    struct ms_survey *survey = calloc(1, sizeof(*survey));
    struct survey_pass *pass = calloc(1, sizeof(*pass));
    struct ms_reader *reader = calloc(1, sizeof(*reader));
    struct ms_codec *codec = calloc(1, sizeof(*codec));
    struct ms_map map = {0};
    bool read = false;

    if (survey && pass && reader && codec) {
        survey->bucket_ns = model->duration_ns / MS_SURVEY_BUCKETS + 1;
        *pass = (struct survey_pass){
            .model = model, .survey = survey, .reader = reader, .codec = codec};
        pass->map = depth == MS_SURVEY_WHOLE ? &map : NULL;
        read = run(pass, depth);
    }
    ms_map_free(&map);
    free(codec);
    free(reader);
    free(pass);
    if (!read) {
        ms_survey_delete(survey);
        survey = NULL;
    }
    return survey;
}

void ms_model_survey(struct ms_model *model, enum ms_survey_depth depth)
{
    ms_survey_delete(model->survey);
    model->survey = take(model, depth);
}
