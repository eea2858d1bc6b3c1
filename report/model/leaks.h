/* SPDX-License-Identifier: Apache-2.0 */
/* Which line of the user's code keeps what grows. The line that asked is often a model's, which
 * keeps nothing: what grows is gathered by the frame at which its stacks join. */
#ifndef MEMSHIM_REPORT_MODEL_LEAKS_H
#define MEMSHIM_REPORT_MODEL_LEAKS_H

#include <stddef.h>

#include "allocator/base/buffer.h"
#include "report/model/growth.h"

struct ms_model;

/* Gathers the rows of sites that grow on the device: at most MS_LEAKS, what grew most first; their
 * `negligible` and cap_at_step are not set. Returns the number. */
size_t ms_leaks_find(const struct ms_model *model, int device, const struct ms_growing_site *rows,
                     size_t count, struct ms_leak *leaks);

/* "train.py:143 in train" */
void ms_leak_add_line(const struct ms_model *model, const struct ms_leak *leak,
                      struct ms_buffer *out);

/* Whether its pace is told in times that something was left, and not by the step. */
bool ms_leak_is_each_time(const struct ms_leak *leak);

/* "has kept 80.0 MiB more every step since step 2", or by what else its pace is told. */
void ms_leak_add_pace(const struct ms_leak *leak, struct ms_buffer *out);

/* "80.0 MiB a step" */
void ms_leak_add_rate(const struct ms_growing_site *row, double bytes_per_round,
                      struct ms_buffer *out);

/* What all of it has grown by. */
uint64_t ms_leaks_bytes(const struct ms_growth *growth);

#endif
