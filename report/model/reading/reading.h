/* SPDX-License-Identifier: Apache-2.0 */
/* The state that the parts of the first reading share. */
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
    struct ms_digest digest; /* the model's parts that take events */
    ms_loop_t *loop;         /* null: there was no memory */
    struct ms_refusals refusals;
    uint64_t next_event; /* expected number of the next record */
    bool from_digest;    /* the next window is the first after the digest */
    bool complete;       /* nothing is missing from first_detail_ns to next_event */
    uint64_t sums_read;  /* from the devices' pages: a bit for each device */
};

/* The device of that index, marked as used. Null: memory ran out. */
struct ms_model_device *ms_reading_device(struct ms_model *model, uint64_t index);

/* ---- read_log.c */

/* Reads one extent of the log: notes and thresholds into the model, out-of-memories into the
 * refusals. */
void ms_reading_log(struct ms_reading *reading, struct ms_extent_place *place);

/* ---- read_events.c */

/* Adds an event to the device's sums and its timeline. */
void ms_reading_fold(struct ms_model_device *device, const struct ms_event *event,
                     uint64_t time_ns);

/* Reads one window of records. */
void ms_reading_window(struct ms_reading *reading, struct ms_extent_place *place);

/* Takes the newest events that no window has. A page's sums may or may not include them. */
void ms_reading_tail(struct ms_reading *reading);

/* ---- read_pages.c */

/* Reads a device's page: its name, and its timeline if that is whole. */
void ms_reading_page(struct ms_reading *reading, struct ms_extent_place *place);

/* Reads its sums, for a trace whose records do not reach to its end. To be called after all
 * records. */
void ms_reading_page_sums(struct ms_reading *reading, struct ms_extent_place *place);

/* ---- read_steps.c */

/* To be called once definitions are read, before the first record. False: there is no memory. */
bool ms_reading_start_steps(struct ms_reading *reading);

/* Begins with the digest of the events whose records are gone. False: there is no memory. */
bool ms_reading_take_digest(struct ms_reading *reading);

/* To be called after the last record and the out-of-memories: lifetimes, steps, and the loop of a
 * program without a backward pass. */
void ms_reading_finish_steps(struct ms_reading *reading);

#endif
