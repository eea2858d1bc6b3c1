/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the records of a trace in order: its windows, then the newest events after them. */
#include <inttypes.h>

#include "report/model/reading/reading.h"
#include "report/trace/records.h"

void ms_reading_fold(struct ms_model_device *device, const struct ms_event *event, uint64_t time_ns)
{
    ms_aggregate_apply(&device->sums, event, time_ns);
    if (device->sums.events > ms_model_series(device)->events) {
        const struct ms_moment moment = ms_aggregate_moment(&device->sums, time_ns);

        ms_series_note(device->series, &moment);
    }
}

static void tell_loop(ms_loop_t *loop, const struct ms_event *event, uint64_t time_ns,
                      uint64_t number)
{
    if (ms_event_is_allocation(event)) {
        ms_loop_allocation(loop, event, time_ns, number);
    } else if (event->kind == MS_EVENT_BLOCK_FREE || event->kind == MS_EVENT_BLOCK_ARENA ||
               event->kind == MS_EVENT_TENSOR_FREE) {
        ms_loop_free(loop, event->id);
    }
}

static void take_event(struct ms_reading *reading, const struct ms_event *event, uint64_t time_ns)
{
    const uint64_t number = reading->next_event++;

    ms_refusals_start(&reading->refusals, reading->model, number);
    reading->model->read_events++;
    if (!ms_event_has_device(event)) {
        ms_digest_take(&reading->digest, event, time_ns, number);
        if (reading->loop && event->kind == MS_EVENT_CALL) {
            ms_loop_call(reading->loop, event->id);
        }
        return;
    }

    struct ms_model_device *device = ms_reading_device(reading->model, event->device);

    if (!device) {
        return;
    }
    ms_reading_fold(device, event, time_ns);
    ms_digest_take(&reading->digest, event, time_ns, number);
    ms_address_ranges_take(&reading->model->address_ranges, event, time_ns);
    if (reading->loop) {
        tell_loop(reading->loop, event, time_ns, number);
    }
    if (event->bytes >= reading->refusals.smallest_open[event->device] &&
        ms_event_is_allocation(event)) {
        ms_refusals_meet(&reading->refusals, event->device, event->bytes);
    }
}

/* Uses the window's own sums, not those of a replay that may have missed events. */
static bool take_bases(struct ms_reading *reading, bool after_gap)
{
    const struct ms_extent_header *header =
        (const struct ms_extent_header *)reading->reader->extent;
    const struct ms_base *base = (const struct ms_base *)(header + 1);

    /* The window was begun for its first event: the bases include all earlier ones. */
    ms_refusals_start(&reading->refusals, reading->model, header->first_event);
    for (uint32_t i = 0; i < header->base_count; i++) {
        struct ms_model_device *device = ms_reading_device(reading->model, base[i].device);

        if (base[i].device >= MS_DEVICE_COUNT || !device) {
            return false;
        }
        device->sums = base[i].sums;
        if (after_gap) {
            ms_site_table_rebase(reading->model->sites, (uint8_t)base[i].device, &device->sums);
        }
    }
    return true;
}

/* The following records are read from there. */
static void begin_window(struct ms_reading *reading, uint64_t sequence, uint64_t start_time_ns,
                         bool after_gap)
{
    struct ms_model_window *window = ms_buffer_extend(&reading->model->windows, sizeof(*window));

    if (window) {
        *window = (struct ms_model_window){.sequence = sequence,
                                           .first_event = reading->next_event,
                                           .start_time_ns = start_time_ns,
                                           .allocations =
                                               ms_site_table_allocations(reading->model->sites),
                                           .after_gap = after_gap};
    }
}

static void end_window(struct ms_reading *reading)
{
    const size_t count = reading->model->windows.bytes / sizeof(struct ms_model_window);
    struct ms_model_window *all = (struct ms_model_window *)reading->model->windows.at;

    if (count > 0) {
        all[count - 1].count = (uint32_t)(reading->next_event - all[count - 1].first_event);
    }
}

void ms_reading_window(struct ms_reading *reading, struct ms_extent_place *place)
{
    struct ms_model *model = reading->model;
    const struct ms_extent_header *header =
        (const struct ms_extent_header *)reading->reader->extent;

    const bool loaded = ms_reader_load(reading->reader, place);
    const bool after_gap =
        loaded && (!reading->complete || header->first_event != reading->next_event);

    if (!loaded || !take_bases(reading, after_gap)) {
        if (!reading->reader->running) {
            ms_model_warn(model, "a window of %" PRIu32 " events is damaged; it was left out",
                          place->count);
        }
        reading->complete = false;
        return;
    }
    model->beginning_lost |= after_gap;
    if (after_gap || reading->from_digest) {
        model->first_detail_ns = header->start_time_ns;
        reading->complete = true;
    }
    reading->next_event = header->first_event;
    begin_window(reading, place->sequence, header->start_time_ns,
                 after_gap || reading->from_digest);
    reading->from_digest = false;

    struct ms_records records = ms_records_begin(reading->codec, header, place->committed_bytes);
    struct ms_event event;
    uint64_t time_ns;

    while (ms_records_next(&records, &event, &time_ns)) {
        take_event(reading, &event, time_ns);
    }
    end_window(reading);
    if (records.left_bytes > 0 || records.count != place->count) {
        ms_model_warn(model, "a window is damaged after %" PRIu32 " of its %" PRIu32 " events",
                      records.count, place->count);
        reading->complete = false;
    }
}

/* Takes the newest events that no window has. A page's sums may or may not include them. */
void ms_reading_tail(struct ms_reading *reading)
{
    const struct ms_reader *reader = reading->reader;

    if (reading->next_event < reader->tail_first) {
        reading->complete = false;
        return;
    }
    begin_window(reading, 0, 0, false);
    while (reading->next_event < reader->tail_end) {
        const struct ms_timed_event *timed = ms_reader_tail(reader, reading->next_event);

        if (!timed) {
            ms_model_warn(reading->model, "the newest events are damaged; they were left out");
            reading->complete = false;
            break;
        }
        take_event(reading, &timed->event, timed->time_ns);
    }
    end_window(reading);
}
