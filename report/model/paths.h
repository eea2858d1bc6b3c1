/* SPDX-License-Identifier: Apache-2.0 */
/* Paths: the lines of the program's own code that led to a request. Python frames that are no
 * library's, outermost first. */
#ifndef MEMSHIM_REPORT_MODEL_PATHS_H
#define MEMSHIM_REPORT_MODEL_PATHS_H

#include <stdbool.h>
#include <stdint.h>

#include "report/symbols/stacks.h"

struct ms_model;

#define MS_PATH_DEPTH 128u /* frames of a path: the outermost ones beyond it are left out */

/* A line of the program's code in a stack. */
struct ms_place {
    uint32_t code, line;
};

struct ms_path {
    uint32_t count;
    struct ms_place places[MS_PATH_DEPTH];
};

/* An unknown site, or one without such frames, has an empty path. */
void ms_path_read(const struct ms_model *model, uint32_t site, struct ms_path *path);

/* Of a node of Python and those that called it; 0: an empty one. */
void ms_path_read_from(const struct ms_model *model, uint32_t innermost, struct ms_path *path);

/* Whether both are the same line of the same function. A function may have several codes: one for
 * each time that it was defined, or compiled by torch.compile. */
bool ms_place_same(const struct ms_model *model, struct ms_place a, struct ms_place b);
bool ms_path_begins_with(const struct ms_model *model, const struct ms_path *path,
                         const struct ms_place *prefix, uint32_t depth);

/* Its strings belong to the model. */
struct ms_frame ms_place_frame(const struct ms_model *model, struct ms_place place);

#endif
