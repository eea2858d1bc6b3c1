/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks as file descriptors. An exported descriptor is a new open file description of the
 * backing's memory file, whose position is that of the chunk's label. The label describes the
 * chunk, and counts the processes that hold it. So a descriptor means the same in every process,
 * even after the exporting process has ended. All under sim_lock. */
#ifndef SIMGPU_SHAREABLE_H
#define SIMGPU_SHAREABLE_H

#include "driver_api.h"

#include <stdbool.h>

struct sim_chunk;

/* A descriptor that the caller owns; -1: impossible. */
int sim_shareable_export(const struct sim_chunk *chunk);

/* Fills in a new chunk from a descriptor, which remains the caller's. */
CUresult sim_shareable_import(struct sim_chunk *chunk, int fd);

/* Whether other processes may still hold a chunk of this process: then its bytes are kept. */
bool sim_shareable_is_shared(const struct sim_chunk *chunk);

/* Releases an imported chunk. */
void sim_shareable_close(struct sim_chunk *chunk);

#endif
