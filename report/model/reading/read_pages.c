/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the pages of devices: names, timelines, and sums for a trace whose end is missing. */
#include <string.h>

#include "report/model/reading/reading.h"

/* A device's page, checked as far as possible; null, with a warning: it is damaged. */
static const struct ms_device_page *load_page(struct ms_reading *reading,
                                              struct ms_extent_place *place,
                                              struct ms_model_device **device)
{
    const struct ms_extent_header *header =
        (const struct ms_extent_header *)reading->reader->extent;
    const struct ms_device_page *page = NULL;

    if (ms_reader_load(reading->reader, place) &&
        header->payload_offset + sizeof(*page) <= MS_EXTENT_BYTES) {
        page = (const struct ms_device_page *)(reading->reader->extent + header->payload_offset);
    }
    *device = page && page->device < MS_DEVICE_COUNT
                  ? ms_reading_device(reading->model, page->device)
                  : NULL;
    if (!*device) {
        ms_model_warn(reading->model, "the page of a device is damaged: its name may be missing");
        return NULL;
    }
    return page;
}

/* Whether the timeline has a sample for every event of the device; if not, it is made anew from the
 * records. A process may have been killed, or be, while it packs some. */
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

void ms_reading_page(struct ms_reading *reading, struct ms_extent_place *place)
{
    struct ms_model_device *device;
    const struct ms_device_page *page = load_page(reading, place, &device);

    if (!page) {
        return;
    }
    memcpy(device->name, page->name, sizeof(device->name) - 1);
    memcpy(device->uuid, page->uuid, sizeof(device->uuid));
    device->has_uuid = page->has_uuid != 0;
    if (is_series_whole(page, reading->reader->running)) {
        *device->series = page->series;
    }
}

/* For a trace whose records do not reach to its end. */
void ms_reading_page_sums(struct ms_reading *reading, struct ms_extent_place *place)
{
    const struct ms_reader *reader = reading->reader;
    struct ms_model_device *device;
    const struct ms_device_page *page = load_page(reading, place, &device);
    struct ms_device_sums read;

    if (!page) {
        return;
    }
    reading->model->one_event_torn |= !ms_reader_sums(reader, place, &read);
    reading->sums_read |= UINT64_C(1) << page->device;
    device->sums = read.sums;
    for (uint64_t i = reader->tail_first; i < reader->tail_end; i++) {
        const struct ms_timed_event *timed = ms_reader_tail(reader, i);

        if (timed && i >= read.end_event && ms_event_has_device(&timed->event) &&
            timed->event.device == page->device) {
            ms_reading_fold(device, &timed->event, timed->time_ns);
        }
    }
    ms_site_table_rebase(reading->model->sites, (uint8_t)page->device, &device->sums);
}
