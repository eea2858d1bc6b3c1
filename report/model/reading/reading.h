/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the first reading share: how far it is, and what goes into the model. */
#ifndef MEMSHIM_REPORT_MODEL_READING_READING_H
#define MEMSHIM_REPORT_MODEL_READING_READING_H

#include <stdbool.h>
#include <stdint.h>

#include "report/model/model.h"
#include "report/model/reading/loop.h"
#include "report/model/reading/refusals.h"
#include "report/read/reader.h"

struct ms_reading {
    struct ms_model *model;
    struct ms_reader *reader;
    struct ms_codec *codec;
    struct ms_digest digest; /* the model's parts that events go into */
    ms_loop_t *loop;         /* null: there was no memory */
    struct ms_refusals refusals;
    uint64_t next_event; /* the ordinal that the next record should have */
    bool from_digest;    /* the next window is the first after it */
    bool complete;       /* nothing is missing from first_detail_ns to next_event */
    uint64_t sums_read;  /* from the devices' pages: a bit a device */
};

/* The device of that index, used from here on. Null where memory runs out. */
struct ms_model_device *ms_reading_device(struct ms_model *model, uint64_t index);

/* ---- read_log.c */

/* One extent of the log: notes and thresholds into the model, out-of-memories into the refusals. */
void ms_reading_log(struct ms_reading *reading, struct ms_extent_place *place);

/* ---- read_events.c */

/* An event goes into the device's sums and its timeline. */
void ms_reading_fold(struct ms_model_device *device, const struct ms_event *event,
                     uint64_t time_ns);

/* One window of records. */
void ms_reading_window(struct ms_reading *reading, struct ms_extent_place *place);

/* Those of the newest events that no window has. In the sums of a page they may be or not. */
void ms_reading_tail(struct ms_reading *reading);

/* ---- read_pages.c */

/* The page of a device: its name, and its timeline where that is whole. */
void ms_reading_page(struct ms_reading *reading, struct ms_extent_place *place);

/* Its sums, for a trace whose records do not reach to its end. After all records. */
void ms_reading_page_sums(struct ms_reading *reading, struct ms_extent_place *place);

/* ---- read_steps.c */

/* Once definitions are read, before the first record. False where there is no memory. */
bool ms_reading_start_steps(struct ms_reading *reading);

/* Begins with what the events came to whose records are gone. False where there is no memory. */
bool ms_reading_take_digest(struct ms_reading *reading);

/* After the last record and the out-of-memories: lifetimes, steps, and the loop of a program that
 * has no backward pass. */
void ms_reading_finish_steps(struct ms_reading *reading);

#endif
