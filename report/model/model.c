/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a trace for the first time: the log, the pages of devices, and every record in order. */
#include "report/model/model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "allocator/base/clock.h"
#include "report/model/kinds.h"
#include "report/model/loop.h"
#include "report/model/model_sites.h"
#include "report/read/log_entries.h"
#include "report/read/progress.h"
#include "report/read/reader.h"
#include "report/replay/recording.h"
#include "report/trace/records.h"

/* Between requests that are the same again: live bytes change by less than one in so many of them,
 * and no more than so many allocations are made. */
#define SAME_PARTS       64u
#define SAME_ALLOCATIONS 8u

struct replay {
    struct ms_model *model;
    struct ms_reader *reader;
    struct ms_codec *codec;
    struct ms_digest digest;  /* the model's parts that events go into */
    ms_loop_t *loop;          /* null: there was no memory */
    struct ms_buffer pending; /* struct ms_model_oom, by event: on their way through the replay */
    size_t next_pending;
    /* By device: the smallest request that has failed and not been met since. */
    uint64_t smallest_open[MS_DEVICE_COUNT];
    uint64_t next_event; /* the ordinal that the next record should have */
    bool from_digest;    /* the next window is the first after it */
    bool complete;       /* nothing is missing from first_detail_ns to next_event */
    uint64_t sums_read;  /* from the devices' pages: a bit a device */
};

void ms_model_warn(struct ms_model *model, const char *format, ...)
{
    char text[512];
    va_list values;

    va_start(values, format);
    vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    ms_buffer_add(&model->warnings, text);
    if (ms_buffer_extend(&model->warnings, 1)) {
        model->warning_count++;
    }
}

/* Null where memory runs out. */
static struct ms_model_device *use_device(struct ms_model *model, uint64_t index)
{
    struct ms_model_device *device = &model->devices[index & (MS_DEVICE_COUNT - 1)];

    if (!device->series) {
        device->series = calloc(1, sizeof(*device->series));
        if (!device->series) {
            return NULL;
        }
        ms_series_init(device->series);
    }
    device->used = true;
    return device;
}

const struct ms_series *ms_model_series(const struct ms_model_device *device)
{
    return &device->series->copy[device->series->current & 1];
}

/* ---- the log ---- */

static void add_note(struct ms_model *model, const char *text, size_t bytes)
{
    char *to = ms_buffer_extend(&model->notes, strnlen(text, bytes) + 1);

    if (to) {
        memcpy(to, text, strnlen(text, bytes));
        model->note_count++;
    }
}

/* Of any version that is read. */
static void read_oom(const struct ms_log_entry *entry, const char *payload,
                     struct ms_log_oom *record)
{
    const size_t known = (size_t)ms_log_oom_state_bytes(entry->bytes);

    memset(record, 0, sizeof(*record));
    memcpy(&record->state, payload, known);
    memcpy((char *)record + sizeof(record->state), payload + known,
           sizeof(*record) - sizeof(record->state));
}

static void add_oom(struct replay *replay, const struct ms_log_entry *entry, const char *payload)
{
    struct ms_model_oom *oom = ms_buffer_extend(&replay->pending, sizeof(*oom));

    if (oom) {
        oom->event = entry->event;
        oom->times = 1;
        oom->time_ns = entry->time_ns;
        oom->device = entry->device & (MS_DEVICE_COUNT - 1);
        read_oom(entry, payload, &oom->record);
        oom->verdict = ms_verdict_parts(&oom->record.state, &oom->short_bytes, NULL, 0, NULL, 0);
    }
}

static void add_threshold(struct ms_model *model, const struct ms_log_entry *entry,
                          const char *payload)
{
    struct ms_model_threshold *threshold = ms_buffer_extend(&model->thresholds, sizeof(*threshold));
    struct ms_log_threshold record;

    if (threshold) {
        memcpy(&record, payload, sizeof(record));
        threshold->time_ns = entry->time_ns;
        threshold->device = entry->device & (MS_DEVICE_COUNT - 1);
        threshold->state = record.state;
        threshold->charged_bytes = record.charged_bytes;
    }
}

static void read_entry(struct replay *replay, const struct ms_log_entry *entry, const char *payload)
{
    if (entry->kind == MS_LOG_OOM) {
        add_oom(replay, entry, payload);
    } else if (entry->kind == MS_LOG_THRESHOLD) {
        add_threshold(replay->model, entry, payload);
    } else {
        add_note(replay->model, payload, entry->bytes);
    }
}

static void read_log(struct replay *replay, struct ms_extent_place *place)
{
    bool damaged = !ms_reader_load(replay->reader, place);

    if (!damaged) {
        struct ms_log_entries entries = ms_log_entries_begin(replay->reader, place);
        struct ms_log_entry entry;
        const char *payload;

        while (ms_log_entries_next(&entries, &entry, &payload)) {
            read_entry(replay, &entry, payload);
        }
        damaged = entries.left_bytes > 0;
    }
    if (damaged) {
        ms_model_warn(replay->model,
                      "a part of the log is damaged: out-of-memories may be missing");
    }
}

/* ---- windows ---- */

/* Out-of-memories that came before the event of this ordinal. */
static void start_pending(struct replay *replay, uint64_t event)
{
    const struct ms_model_oom *all = (const struct ms_model_oom *)replay->pending.at;
    const size_t count = replay->pending.bytes / sizeof(*all);

    while (replay->next_pending < count && all[replay->next_pending].event <= event) {
        const struct ms_model_oom *pending = &all[replay->next_pending];

        replay->next_pending++;

        struct ms_model_device *device = use_device(replay->model, pending->device);
        uint64_t *smallest = &replay->smallest_open[pending->device];

        if (device) {
            ms_aggregate_oom(&device->sums, pending->record.state.source == MS_OOM_TORCH);
        }
        if (pending->record.state.requested_bytes < *smallest) {
            *smallest = pending->record.state.requested_bytes;
        }
    }
}

/* An allocation of so many bytes succeeded: the requests that failed with no more than that have
 * been got over. */
static void meet(struct replay *replay, uint64_t device, uint64_t bytes)
{
    struct ms_model_oom *all = (struct ms_model_oom *)replay->pending.at;
    uint64_t smallest = UINT64_MAX;

    for (size_t i = 0; i < replay->next_pending; i++) {
        struct ms_model_oom *oom = &all[i];
        const uint64_t requested = oom->record.state.requested_bytes;

        if (oom->device != device || oom->recovered) {
            continue;
        }
        if (requested <= bytes) {
            oom->recovered = true;
        } else if (requested < smallest) {
            smallest = requested;
        }
    }
    replay->smallest_open[device] = smallest;
}

static void fold_event(struct ms_model_device *device, const struct ms_event *event,
                       uint64_t time_ns)
{
    ms_aggregate_apply(&device->sums, event, time_ns);
    if (device->sums.events > ms_model_series(device)->events) {
        const struct ms_moment moment = ms_aggregate_moment(&device->sums, time_ns);

        ms_series_note(device->series, &moment);
    }
}

static void replay_event(struct replay *replay, const struct ms_event *event, uint64_t time_ns)
{
    start_pending(replay, replay->next_event);
    replay->next_event++;
    replay->model->read_events++;
    if (!ms_event_has_device(event)) {
        ms_digest_take(&replay->digest, event, time_ns);
        return;
    }

    struct ms_model_device *device = use_device(replay->model, event->device);

    if (!device) {
        return;
    }
    fold_event(device, event, time_ns);
    ms_digest_take(&replay->digest, event, time_ns);
    ms_address_ranges_take(&replay->model->address_ranges, event, time_ns);
    if (replay->loop && ms_event_is_allocation(event)) {
        ms_loop_allocation(replay->loop, event->site, time_ns);
    }
    if (event->bytes >= replay->smallest_open[event->device] && ms_event_is_allocation(event)) {
        meet(replay, event->device, event->bytes);
    }
}

/* The window's own sums are believed rather than those of a replay that may have missed events. */
static bool take_bases(struct replay *replay, bool after_gap)
{
    const struct ms_extent_header *header = (const struct ms_extent_header *)replay->reader->extent;
    const struct ms_base *base = (const struct ms_base *)(header + 1);

    /* The window was begun for its first event: what came before that is in the bases. */
    start_pending(replay, header->first_event);
    for (uint32_t i = 0; i < header->base_count; i++) {
        struct ms_model_device *device = use_device(replay->model, base[i].device);

        if (base[i].device >= MS_DEVICE_COUNT || !device) {
            return false;
        }
        device->sums = base[i].sums;
        if (after_gap) {
            ms_site_table_rebase(replay->model->sites, (uint8_t)base[i].device, &device->sums);
        }
    }
    return true;
}

/* What follows is read from there. */
static void begin_window(struct replay *replay, uint64_t sequence, uint64_t start_time_ns,
                         bool after_gap)
{
    struct ms_model_window *window = ms_buffer_extend(&replay->model->windows, sizeof(*window));

    if (window) {
        *window =
            (struct ms_model_window){.sequence = sequence,
                                     .first_event = replay->next_event,
                                     .start_time_ns = start_time_ns,
                                     .allocations = ms_site_table_allocations(replay->model->sites),
                                     .after_gap = after_gap};
    }
}

static void end_window(struct replay *replay)
{
    const size_t count = replay->model->windows.bytes / sizeof(struct ms_model_window);
    struct ms_model_window *all = (struct ms_model_window *)replay->model->windows.at;

    if (count > 0) {
        all[count - 1].count = (uint32_t)(replay->next_event - all[count - 1].first_event);
    }
}

static void read_window(struct replay *replay, struct ms_extent_place *place)
{
    struct ms_model *model = replay->model;
    const struct ms_extent_header *header = (const struct ms_extent_header *)replay->reader->extent;

    const bool loaded = ms_reader_load(replay->reader, place);
    const bool after_gap =
        loaded && (!replay->complete || header->first_event != replay->next_event);

    if (!loaded || !take_bases(replay, after_gap)) {
        if (!replay->reader->running) {
            ms_model_warn(model, "a window of %" PRIu32 " events is damaged; it was left out",
                          place->count);
        }
        replay->complete = false;
        return;
    }
    model->beginning_lost |= after_gap;
    if (after_gap || replay->from_digest) {
        model->first_detail_ns = header->start_time_ns;
        replay->complete = true;
    }
    replay->next_event = header->first_event;
    begin_window(replay, place->sequence, header->start_time_ns, after_gap || replay->from_digest);
    replay->from_digest = false;

    struct ms_records records = ms_records_begin(replay->codec, header, place->committed_bytes);
    struct ms_event event;
    uint64_t time_ns;

    while (ms_records_next(&records, &event, &time_ns)) {
        replay_event(replay, &event, time_ns);
    }
    end_window(replay);
    if (records.left_bytes > 0 || records.count != place->count) {
        ms_model_warn(model, "a window is damaged after %" PRIu32 " of its %" PRIu32 " events",
                      records.count, place->count);
        replay->complete = false;
    }
}

/* Those of the newest events that no window has. In the sums of a page they may be or not. */
static void read_tail(struct replay *replay)
{
    const struct ms_reader *reader = replay->reader;

    if (replay->next_event < reader->tail_first) {
        replay->complete = false;
        return;
    }
    begin_window(replay, 0, 0, false);
    while (replay->next_event < reader->tail_end) {
        const struct ms_timed_event *timed = ms_reader_tail(reader, replay->next_event);

        if (!timed) {
            ms_model_warn(replay->model, "the newest events are damaged; they were left out");
            replay->complete = false;
            break;
        }
        replay_event(replay, &timed->event, timed->time_ns);
    }
    end_window(replay);
}

/* ---- device pages ---- */

/* The page of a device, checked as far as it can be; null, and a warning, where it is damaged. */
static const struct ms_device_page *load_page(struct replay *replay, struct ms_extent_place *place,
                                              struct ms_model_device **device)
{
    const struct ms_extent_header *header = (const struct ms_extent_header *)replay->reader->extent;
    const struct ms_device_page *page = NULL;

    if (ms_reader_load(replay->reader, place) &&
        header->payload_offset + sizeof(*page) <= MS_EXTENT_BYTES) {
        page = (const struct ms_device_page *)(replay->reader->extent + header->payload_offset);
    }
    *device =
        page && page->device < MS_DEVICE_COUNT ? use_device(replay->model, page->device) : NULL;
    if (!*device) {
        ms_model_warn(replay->model, "the page of a device is damaged: its name may be missing");
        return NULL;
    }
    return page;
}

/* Every event of the device is a sample of its timeline: where that does not add up, it is made
 * anew from the records. A process may have been killed, or be, in the midst of packing some. */
static bool is_series_whole(const struct ms_device_page *page, bool running)
{
    const struct ms_series *series = &page->series.copy[page->series.current & 1];
    uint64_t samples = 0;

    if (!ms_series_is_valid(series)) {
        return false;
    }
    for (uint32_t i = 0; i < series->used; i++) {
        samples += series->buckets[i].samples;
    }
    return running || (samples >= series->events && samples - series->events <= MS_TAIL_EVENTS);
}

static void read_page(struct replay *replay, struct ms_extent_place *place)
{
    struct ms_model_device *device;
    const struct ms_device_page *page = load_page(replay, place, &device);

    if (!page) {
        return;
    }
    memcpy(device->name, page->name, sizeof(device->name) - 1);
    memcpy(device->uuid, page->uuid, sizeof(device->uuid));
    device->has_uuid = page->has_uuid != 0;
    if (is_series_whole(page, replay->reader->running)) {
        *device->series = page->series;
    }
}

/* For a trace whose records do not reach to its end. */
static void read_page_sums(struct replay *replay, struct ms_extent_place *place)
{
    const struct ms_reader *reader = replay->reader;
    struct ms_model_device *device;
    const struct ms_device_page *page = load_page(replay, place, &device);
    struct ms_device_sums read;

    if (!page) {
        return;
    }
    replay->model->one_event_torn |= !ms_reader_sums(reader, place, &read);
    replay->sums_read |= UINT64_C(1) << page->device;
    device->sums = read.sums;
    for (uint64_t i = reader->tail_first; i < reader->tail_end; i++) {
        const struct ms_timed_event *timed = ms_reader_tail(reader, i);

        if (timed && i >= read.end_event && ms_event_has_device(&timed->event) &&
            timed->event.device == page->device) {
            fold_event(device, &timed->event, timed->time_ns);
        }
    }
    ms_site_table_rebase(replay->model->sites, (uint8_t)page->device, &device->sums);
}

/* ---- the whole ---- */

/* Whether both were asked for in the same line of Python, or, where there is none, at one site. */
static bool same_line(const struct ms_model *model, uint32_t a, uint32_t b)
{
    const struct ms_site_definition *one = ms_definitions_site(model->definitions, a);
    const struct ms_site_definition *other = ms_definitions_site(model->definitions, b);

    return a == b || (one && other && one->python != 0 && one->python == other->python);
}

static uint64_t apart(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* A request that was refused is often asked again, by an allocator (JAX's does) or by a program
 * that goes on: as long as next to nothing came or went in between that is the same event.
 * PyTorch's own errors are each for a request of the program's. */
static bool asked_again(const struct ms_model *model, const struct ms_model_oom *before,
                        const struct ms_model_oom *now)
{
    const struct ms_oom_state *a = &before->record.state;
    const struct ms_oom_state *b = &now->record.state;

    return before->device == now->device && a->source == MS_OOM_DRIVER &&
           b->source == MS_OOM_DRIVER && a->requested_bytes == b->requested_bytes &&
           apart(a->live_bytes, b->live_bytes) < a->requested_bytes / SAME_PARTS &&
           now->record.allocations - before->record.allocations <= SAME_ALLOCATIONS &&
           before->recovered == now->recovered && before->verdict == now->verdict &&
           same_line(model, (uint32_t)a->site, (uint32_t)b->site);
}

/* The newest of a row stands for it. False: there is no memory. */
static bool add_finished(struct ms_model *model, const struct ms_model_oom *now)
{
    const size_t count = ms_model_oom_count(model);
    struct ms_model_oom *oom = count > 0 ? ms_model_oom_at(model, count - 1) : NULL;
    uint64_t times = 1;

    if (oom && asked_again(model, oom, now)) {
        times = oom->times + 1;
    } else {
        oom = ms_buffer_extend(&model->ooms, sizeof(*oom));
    }
    if (oom) {
        *oom = *now;
        oom->times = times;
    }
    return oom != NULL;
}

static void finish_ooms(struct replay *replay)
{
    struct ms_model *model = replay->model;
    const struct ms_model_oom *all = (const struct ms_model_oom *)replay->pending.at;
    const size_t count = replay->pending.bytes / sizeof(*all);
    const bool ended_well = model->end == MS_PROCESS_ENDED && model->header.exit_known &&
                            model->header.exit_status == 0;

    for (size_t i = 0; i < count; i++) {
        const struct ms_aggregate *sums = &model->devices[all[i].device].sums;
        struct ms_model_oom oom = all[i];

        oom.recovered |= ended_well || sums->allocations + sums->tensor_allocations >
                                           oom.record.allocations + MS_WENT_ON_ALLOCATIONS;
        if (!add_finished(model, &oom)) {
            return;
        }
    }
}

/* The log is in order but for what a damaged one claims. */
static void check_pending(struct replay *replay)
{
    const struct ms_model_oom *all = (const struct ms_model_oom *)replay->pending.at;
    const size_t count = replay->pending.bytes / sizeof(*all);

    for (size_t i = 1; i < count; i++) {
        if (all[i - 1].event > all[i].event) {
            ms_model_warn(replay->model,
                          "the log is out of order: what was recovered from may be wrong");
            return;
        }
    }
}

static uint64_t last_time(const struct ms_model *model)
{
    uint64_t last = 0;

    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        if (model->devices[i].sums.last_time_ns > last) {
            last = model->devices[i].sums.last_time_ns;
        }
    }
    return last;
}

static void set_end(struct ms_model *model, bool running)
{
    const struct ms_file_header *header = &model->header;

    model->duration_ns = last_time(model);
    if (header->state == MS_TRACE_CLOSED) {
        model->end = MS_PROCESS_ENDED;
        model->duration_ns = header->end_time_ns;
    } else if (running) {
        const uint64_t now_ns = ms_clock_unix_ns();

        model->end = MS_PROCESS_RUNNING;
        if (now_ns > header->start_unix_ns && now_ns - header->start_unix_ns > model->duration_ns) {
            model->duration_ns = now_ns - header->start_unix_ns;
        }
    } else {
        model->end = MS_PROCESS_KILLED;
    }
}

static void note_damage(struct ms_model *model, const struct ms_reader *reader)
{
    if (reader->header_damaged) {
        ms_model_warn(model, "the header is damaged: names and times may be wrong");
    }
    if (reader->cut) {
        ms_model_warn(model, "the file ends inside an extent: it was cut");
    }
    if (reader->strange_extents > 0) {
        ms_model_warn(
            model, "%" PRIu64 " parts are damaged or belong to another trace; they were left out",
            reader->strange_extents);
    }
    if (ms_reader_count(&reader->windows) == 0) {
        ms_model_warn(model, "no record of an event could be read");
    }
}

static bool start_steps(struct replay *replay)
{
    struct ms_model *model = replay->model;

    model->landmarks = ms_landmarks_new(model->definitions);
    replay->digest =
        (struct ms_digest){.sites = model->sites,
                           .steps = model->landmarks ? ms_steps_new(model->landmarks) : NULL,
                           .steps_recorded = &model->steps,
                           .tags = &model->tags,
                           .moves = &model->moves,
                           .moments = &model->digest_moments};
    return replay->digest.steps != NULL;
}

/* Begins with what the events came to whose records are gone. False where there is no memory. */
static bool take_digest(struct replay *replay)
{
    struct ms_model *model = replay->model;
    struct ms_buffer bytes = {0};
    const bool found = ms_reader_digest(replay->reader, &bytes);
    const bool loaded = found && ms_digest_load(&replay->digest, bytes.at, bytes.bytes);

    ms_buffer_free(&bytes);
    if (loaded) {
        model->digest_events = replay->digest.end_event;
        replay->next_event = replay->digest.end_event;
        replay->from_digest = true;
        ms_site_table_copy_live(model->sites, &model->digest_live);
        return true;
    }
    if (!found) {
        return true;
    }
    ms_model_warn(model, "what the oldest events came to is damaged; it was left out");
    ms_steps_delete(replay->digest.steps);
    ms_site_table_delete(model->sites);
    ms_recorded_free(&model->steps, &model->tags, &model->moves);
    ms_digest_moments_free(&model->digest_moments);
    model->steps = (struct ms_model_steps){0};
    model->tags = (struct ms_model_tags){0};
    model->sites = replay->digest.sites = ms_site_table_new();
    replay->digest.steps = ms_steps_new(model->landmarks);
    return model->sites && replay->digest.steps;
}

/* Why steps cannot be counted; null where they can. */
static const char *missing_of(const struct ms_model *model)
{
    if (model->beginning_lost) {
        return "the trace's beginning is gone";
    }
    if (model->header.lost_events > 0) {
        return "the disk had no room for some of the trace";
    }
    if (ms_definitions_sampling_bytes(model->definitions) > 0) {
        return "sampled: most allocations have no call site";
    }
    return NULL;
}

/* Of one that no out-of-memory ended, nothing is known but that. */
static struct ms_run_end end_of(const struct ms_model *model)
{
    const struct ms_model_oom *fatal = ms_model_fatal_oom(model);
    const uint32_t site = fatal ? fatal->record.state.site : 0;

    return (struct ms_run_end){.ran_out_ns = fatal ? fatal->time_ns : UINT64_MAX,
                               .in_pass = ms_landmarks_of(model->landmarks, site)->doing ==
                                          MS_DOING_BACKWARD};
}

static bool has_tensors(const struct ms_model *model)
{
    bool any = false;

    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        any |= model->devices[i].sums.tensor_allocations > 0;
    }
    return any;
}

/* PyTorch tells rounds otherwise: what makes its parameters one by one is no loop of steps. */
static void find_loop(struct replay *replay)
{
    struct ms_model *model = replay->model;
    struct ms_recurrence *found = &model->recurrence;

    /* Nothing is told where records were recycled: the loop was not seen from its beginning. */
    if (replay->loop && !found->known && found->passes == 0 && !missing_of(model) &&
        model->digest_events == 0 && model->steps.count == 0 && !has_tensors(model) &&
        ms_landmarks_first_call(model->landmarks) == UINT32_MAX) {
        (void)ms_loop_judge(replay->loop, found);
    }
}

static void finish_steps(struct replay *replay)
{
    struct ms_model *model = replay->model;
    const struct ms_run_end end = end_of(model);

    ms_site_table_finish(model->sites, &end);
    ms_steps_judge(replay->digest.steps, model->sites, missing_of(model), &model->recurrence);
    for (size_t i = 0; i < ms_model_oom_count(model); i++) {
        struct ms_model_oom *oom = ms_model_oom_at(model, i);

        oom->training = ms_steps_trains(replay->digest.steps, model->sites, model->definitions,
                                        oom->record.state.site);
        oom->evaluating = ms_steps_evaluates(replay->digest.steps, model->sites, model->definitions,
                                             &model->recurrence, oom->record.state.site);
    }
    find_loop(replay);
    ms_steps_delete(replay->digest.steps);
    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        model->made_state_bytes[i] =
            ms_kinds_made_state(model->landmarks, model->sites, (uint8_t)i);
    }
}

static bool read_all(struct replay *replay)
{
    struct ms_model *model = replay->model;
    struct ms_reader *reader = replay->reader;
    const struct ms_file_header *header = &model->header;

    for (size_t i = 0; i < ms_reader_count(&reader->logs); i++) {
        read_log(replay, ms_reader_place(&reader->logs, i));
    }
    check_pending(replay);
    for (size_t i = 0; i < ms_reader_count(&reader->devices); i++) {
        read_page(replay, ms_reader_place(&reader->devices, i));
    }
    ms_model_read_definitions(model, reader);
    if (!start_steps(replay)) {
        return false;
    }
    if (!take_digest(replay)) {
        return false;
    }
    for (size_t i = 0; i < ms_reader_count(&reader->windows); i++) {
        struct ms_extent_place *place = ms_reader_place(&reader->windows, i);

        ms_progress_note("reading", i, ms_reader_count(&reader->windows));
        if (place->first_event >= model->digest_events) { /* others are in the digest */
            read_window(replay, place);
        }
    }
    read_tail(replay);
    /* Under a writer that lives: what the newest events name was defined before them. */
    if (reader->running) {
        ms_model_read_definitions(model, reader);
    }
    ms_model_check_definitions(model);
    start_pending(replay, UINT64_MAX);

    /* A process that lives may have packed more since its tail was read. */
    const bool to_the_end = replay->complete && replay->next_event >= header->events;

    for (size_t i = 0; i < ms_reader_count(&reader->devices) && !to_the_end; i++) {
        read_page_sums(replay, ms_reader_place(&reader->devices, i));
    }
    model->sums_exact = true;
    for (int i = 0; i < MS_DEVICE_COUNT && !to_the_end; i++) {
        if (model->devices[i].used && !(replay->sums_read >> i & 1)) {
            model->sums_exact = false;
        }
    }
    return true;
}

/* The trace's file and folder, from either. False where the path is too long. */
static bool set_paths(struct ms_model *model, const char *path)
{
    struct stat status;
    const char *slash = strrchr(path, '/');
    int length;

    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode)) {
        snprintf(model->dir, sizeof(model->dir), "%s", path);
        length = snprintf(model->path, sizeof(model->path), "%s/%s", path, MS_TRACE_FILE);
    } else {
        snprintf(model->dir, sizeof(model->dir), "%.*s", slash ? (int)(slash - path) : 1,
                 slash ? path : ".");
        length = snprintf(model->path, sizeof(model->path), "%s", path);
    }
    return length < (int)sizeof(model->path);
}

static bool read_model(struct ms_model *model, struct ms_reader *reader, struct ms_codec *codec,
                       char *why, size_t why_bytes)
{
    struct replay replay = {.model = model, .reader = reader, .codec = codec, .complete = true};

    if (!ms_reader_open(reader, model->path, why, why_bytes)) {
        return false;
    }
    model->definitions = ms_definitions_new();
    model->sites = ms_site_table_new();
    replay.loop = ms_loop_new(model->definitions);
    memset(replay.smallest_open, 0xff, sizeof(replay.smallest_open));
    model->header = reader->header;
    note_damage(model, reader);
    if (!model->definitions || !model->sites || !read_all(&replay)) {
        snprintf(why, why_bytes, "%s: no memory to read it", model->path);
        ms_reader_close(reader);
        ms_loop_delete(replay.loop);
        ms_buffer_free(&replay.pending);
        return false;
    }
    model->lost_events = model->header.lost_events;
    model->recycled_events = model->header.recycled_events > model->digest_events
                                 ? model->header.recycled_events
                                 : model->digest_events;
    model->lost_entries = model->header.lost_entries;
    model->events =
        model->header.events > model->read_events ? model->header.events : model->read_events;
    model->lost_definitions = model->header.lost_definitions;
    set_end(model, reader->running);
    finish_ooms(&replay);
    finish_steps(&replay);
    ms_reader_close(reader);
    ms_loop_delete(replay.loop);
    ms_buffer_free(&replay.pending);
    return true;
}

struct ms_model *ms_model_new(const char *path, char *why, size_t why_bytes)
{
    struct ms_model *model = calloc(1, sizeof(*model));
    struct ms_reader *reader = calloc(1, sizeof(*reader));
    struct ms_codec *codec = calloc(1, sizeof(*codec));
    bool read = false;

    if (!model || !reader || !codec) {
        snprintf(why, why_bytes, "%s: no memory to read it", path);
    } else if (!set_paths(model, path)) {
        snprintf(why, why_bytes, "%s: the path is too long", path);
    } else {
        read = read_model(model, reader, codec, why, why_bytes);
    }
    free(reader);
    free(codec);
    if (model && !read) {
        ms_model_delete(model);
        model = NULL;
    }
    return model;
}

void ms_model_delete(struct ms_model *model)
{
    ms_survey_delete(model->survey);
    ms_recording_delete(model->recording);
    ms_stacks_delete(model->stacks);
    ms_site_table_delete(model->sites);
    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        free(model->devices[i].series);
    }
    ms_landmarks_delete(model->landmarks);
    ms_definitions_delete(model->definitions);
    ms_buffer_free(&model->recurrence.begins);
    ms_buffer_free(&model->steps.times);
    ms_buffer_free(&model->tags.ranges);
    ms_buffer_free(&model->tags.open);
    ms_buffer_free(&model->ooms);
    ms_buffer_free(&model->thresholds);
    ms_buffer_free(&model->windows);
    ms_digest_moments_free(&model->digest_moments);
    ms_buffer_free(&model->digest_live);
    ms_buffer_free(&model->moves);
    ms_buffer_free(&model->address_ranges.all);
    ms_buffer_free(&model->notes);
    ms_buffer_free(&model->warnings);
    free(model);
}

void ms_model_name_sites(struct ms_model *model, enum ms_stacks_effort effort,
                         const char *modules_dir)
{
    ms_stacks_delete(model->stacks);
    model->stacks = ms_stacks_new(model->definitions, effort, modules_dir);
}

const struct ms_model_oom *ms_model_fatal_oom(const struct ms_model *model)
{
    const struct ms_model_oom *fatal = NULL;

    for (size_t i = 0; i < ms_model_oom_count(model); i++) {
        const struct ms_model_oom *oom = ms_model_oom_at(model, i);

        if (!oom->recovered) {
            fatal = oom;
        }
    }
    return fatal;
}

int ms_model_main_device(const struct ms_model *model)
{
    const struct ms_model_oom *fatal = ms_model_fatal_oom(model);
    unsigned __int128 best = 0;
    int device = -1;

    if (fatal) {
        return (int)fatal->device;
    }
    for (int i = 0; i < MS_DEVICE_COUNT; i++) {
        const struct ms_aggregate *sums = &model->devices[i].sums;
        const uint64_t cap = sums->now.cap_bytes ? sums->now.cap_bytes : UINT64_MAX;
        const unsigned __int128 share =
            ((unsigned __int128)sums->peak_charged.charged_bytes << 32) / cap;

        if (model->devices[i].used && (device < 0 || share > best)) {
            best = share;
            device = i;
        }
    }
    return device;
}
