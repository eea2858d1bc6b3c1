/* SPDX-License-Identifier: Apache-2.0 */
/* A moment of a run as a person names it: "peak", "oom", "end", "40m", "step:1200". */
#ifndef MEMSHIM_REPORT_MODEL_MOMENT_H
#define MEMSHIM_REPORT_MODEL_MOMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/model/model.h"

#define MS_MOMENT_WORDS "peak, oom, end, a time into the run such as 40m or 2.5s, or step:N"

enum ms_moment_word {
    MS_AT_PEAK, /* of live bytes, of each device */
    MS_AT_OOM,  /* the out-of-memory that ended the run, else its last one */
    MS_AT_END,
    MS_AT_TIME, /* since the run began */
    MS_AT_STEP  /* the beginning of a step that the program reported */
};

struct ms_moment_name {
    enum ms_moment_word word;
    uint64_t number; /* ns; or the step's number */
};

/* False: the text names none. */
bool ms_moment_parse(const char *text, struct ms_moment_name *name);

/* Its time on the device. False, with a sentence in `why` that names the trace: the run had no such
 * moment. */
bool ms_moment_find(const struct ms_model *model, const struct ms_moment_name *name, int device,
                    uint64_t *time_ns, char *why, size_t why_bytes);

/* "at the peak", "at its end, 2 h 05 m", "at 40 m 00 s". */
char *ms_moment_text(const struct ms_moment_name *name, uint64_t time_ns, char *text,
                     size_t text_bytes);

#endif
