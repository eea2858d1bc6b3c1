/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the log of a trace: its out-of-memories, its thresholds and its notes. */
#include <string.h>

#include "report/model/reading/reading.h"
#include "report/read/log_entries.h"

static void add_note(struct ms_model *model, const char *text, size_t bytes)
{
    char *to = ms_buffer_extend(&model->notes, strnlen(text, bytes) + 1);

    if (to) {
        memcpy(to, text, strnlen(text, bytes));
        model->note_count++;
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

static void read_entry(struct ms_reading *reading, const struct ms_log_entry *entry,
                       const char *payload)
{
    if (entry->kind == MS_LOG_OOM) {
        ms_refusals_add(&reading->refusals, entry, payload);
    } else if (entry->kind == MS_LOG_THRESHOLD) {
        add_threshold(reading->model, entry, payload);
    } else {
        add_note(reading->model, payload, entry->bytes);
    }
}

void ms_reading_log(struct ms_reading *reading, struct ms_extent_place *place)
{
    bool damaged = !ms_reader_load(reading->reader, place);

    if (!damaged) {
        struct ms_log_entries entries = ms_log_entries_begin(reading->reader, place);
        struct ms_log_entry entry;
        const char *payload;

        while (ms_log_entries_next(&entries, &entry, &payload)) {
            read_entry(reading, &entry, payload);
        }
        damaged = entries.left_bytes > 0;
    }
    if (damaged) {
        ms_model_warn(reading->model,
                      "a part of the log is damaged: out-of-memories may be missing");
    }
}
