/* SPDX-License-Identifier: Apache-2.0 */
/* Which device memory contains what a host wrote, and which would contain only results of kernels:
 * here kernels compute nothing. If SIMGPU_VALUES is set, the host gets its values for the latter,
 * and memshim gets a report of the read. Writes are tracked in the order of the program's calls,
 * not of their execution. All under sim_lock. */
#ifndef SIMGPU_VALUES_H
#define SIMGPU_VALUES_H

#include "driver_api.h"
#include "memory.h"
#include "work.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether such a copy to the host has to be decided when all work before it is done: a collective
 * may turn out to bring nothing that a host wrote. waits: the host waits for the copy; PyTorch also
 * waits for asynchronous ones if it reads a value. */
bool sim_values_come_late(bool waits);

/* Called before a copy is queued. Decides whether its bytes are moved whatever their number, and
 * notes what it writes to a device. If the host reads what no host wrote, decides copy->answer.
 * Releases sim_lock while it reports to memshim. `bytes`: from the first to the last byte that it
 * reads or writes at either end. */
void sim_values_copy(struct sim_copy *copy, struct sim_location to, struct sim_location from,
                     size_t to_bytes, size_t from_bytes);

/* Called before a memset of device memory is queued. */
void sim_values_set(const struct sim_work *work, uint64_t at, size_t bytes);

/* Whether a host wrote all of it, or a kernel computed it from such memory. */
bool sim_values_known(uint64_t at, size_t bytes);

/* Called before a kernel that computes is queued, for what it stores. known: it computes this from
 * known values only. */
void sim_values_stored(uint64_t at, size_t bytes, bool known);

/* Stores the answer of a copy: one row of its destination. Without sim_lock. */
void sim_values_answer(const struct sim_answer *answer, uint64_t row, void *to, size_t bytes);

#endif
