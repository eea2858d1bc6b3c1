/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the line of the user's code that keeps growing memory. The line that asked for it is often
 * a model's, which keeps nothing. So growth is collected at the frame where its stacks join. */
#ifndef MEMSHIM_REPORT_MODEL_VERDICT_LEAKS_H
#define MEMSHIM_REPORT_MODEL_VERDICT_LEAKS_H

#include <stddef.h>

#include "allocator/base/buffer.h"
#include "report/model/growth.h"

struct ms_model;

/* Collects the device's growing rows into at most MS_LEAKS leaks, the largest growth first; does
 * not set `negligible` and cap_at_step. Returns their number. */
size_t ms_leaks_find(const struct ms_model *model, int device, const struct ms_growing_site *rows,
                     size_t count, struct ms_leak *leaks);

/* "train.py:143 in train" */
void ms_leak_add_line(const struct ms_model *model, const struct ms_leak *leak,
                      struct ms_buffer *out);

/* Whether its pace is per time that something was left, and not per step. */
bool ms_leak_is_each_time(const struct ms_leak *leak);

/* The bytes that are left each time, be it in each step or not. */
uint64_t ms_leak_each_time(const struct ms_leak *leak);

/* "has kept 80.0 MiB more every step since step 2", or with another unit; and why it is only
 * likely. asks: only segments were seen, and the line asked for them. */
void ms_leak_add_pace(const struct ms_leak *leak, bool asks, struct ms_buffer *out);

/* "80.0 MiB more every step", or "80.0 MiB more about every 5 steps (16.0 MiB a step on average)".
 * in: follows "more". Not of MS_ROUND_TIME. */
void ms_leak_add_every(const struct ms_growing_site *row, const char *in, struct ms_buffer *out);

/* "80.0 MiB a step" */
void ms_leak_add_rate(const struct ms_growing_site *row, double bytes_per_round,
                      struct ms_buffer *out);

/* The growth of all leaks. */
uint64_t ms_leaks_bytes(const struct ms_growth *growth);

#endif
