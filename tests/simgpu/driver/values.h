/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which device memory holds what a host wrote, and which only what kernels would have: a kernel
 * computes nothing here. Where SIMGPU_VALUES is set, the host gets of the latter what that says,
 * and memshim is told of the read. Writes are followed in the order in which they are asked for,
 * not carried out: that is the order that the program wrote down. All under sim_lock.
 */
#ifndef SIMGPU_VALUES_H
#define SIMGPU_VALUES_H

#include "driver_api.h"
#include "memory.h"
#include "work.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A copy is about to be queued: settles whether its bytes are moved whatever their number, and
 * notes what it writes to a device, or, where the host reads what no host wrote, settles
 * copy->answer. Gives sim_lock up meanwhile where memshim is told. `bytes`:
 * from the first byte that it reads or writes at either end to the last. */
void sim_values_copy(struct sim_copy *copy, struct sim_location to, struct sim_location from,
                     size_t to_bytes, size_t from_bytes);

/* A memset of device memory is about to be queued. */
void sim_values_set(const struct sim_work *work, uint64_t at, size_t bytes);

/* Whether a host wrote all of it, or a kernel that computes made it of such. */
bool sim_values_known(uint64_t at, size_t bytes);

/* A kernel that computes is about to be queued and stores there. known: what it stores it makes of
 * known values alone. */
void sim_values_stored(uint64_t at, size_t bytes, bool known);

/* Stores the answer of a copy: one row of its destination. Without sim_lock. */
void sim_values_answer(const struct sim_answer *answer, uint64_t row, void *to, size_t bytes);

#endif
