/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a recording of a trace's events, for whoever reads them anyhow. */
#ifndef MEMSHIM_REPORT_REPLAY_RECORDER_H
#define MEMSHIM_REPORT_REPLAY_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "report/read/reader.h"
#include "report/replay/recording.h"

struct ms_recorder;

/* recording: begun, with its device set, and good until the recorder is deleted. Null where memory
 * ran out. */
struct ms_recorder *ms_recorder_new(struct ms_recording *recording);
void ms_recorder_delete(struct ms_recorder *recorder); /* null: nothing */

/* Once, before the first event: the out-of-memories of the trace's log. Loads extents. */
void ms_recorder_log(struct ms_recorder *recorder, struct ms_reader *reader);

/* Every event of the trace in order, those of other devices too. */
void ms_recorder_event(struct ms_recorder *recorder, const struct ms_event *event,
                       uint64_t time_ns);

/* Once, after the last event. False where memory ran out. */
bool ms_recorder_end(struct ms_recorder *recorder, const struct ms_file_header *header);

#endif
