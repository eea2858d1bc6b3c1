/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a recording of a trace's events, for callers that read the events anyway. */
#ifndef MEMSHIM_REPORT_REPLAY_RECORDER_H
#define MEMSHIM_REPORT_REPLAY_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "report/read/reader.h"
#include "report/replay/recording.h"

struct ms_recorder;

/* recording: begun, with its device set; it must live until the recorder is deleted. Null: memory
 * ran out. */
struct ms_recorder *ms_recorder_new(struct ms_recording *recording);
void ms_recorder_delete(struct ms_recorder *recorder); /* null: nothing */

/* Called once, before the first event: reads the out-of-memories of the trace's log. Loads
 * extents. */
void ms_recorder_log(struct ms_recorder *recorder, struct ms_reader *reader);

/* Takes every event of the trace in order, of other devices too. */
void ms_recorder_event(struct ms_recorder *recorder, const struct ms_event *event,
                       uint64_t time_ns);

/* Called once, after the last event. False: memory ran out. */
bool ms_recorder_end(struct ms_recorder *recorder, const struct ms_file_header *header);

#endif
