/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks as file descriptors. An exported descriptor is a new open file description of the
 * backing's memory file whose position says where the chunk's label lies; the label says what the
 * chunk is and how many processes hold it. So a descriptor means the same wherever it is passed to,
 * and after the exporting process has ended. All under sim_lock.
 */
#ifndef SIMGPU_SHAREABLE_H
#define SIMGPU_SHAREABLE_H

#include "driver_api.h"

#include <stdbool.h>

struct sim_chunk;

/* A descriptor that the caller owns; -1: not possible. */
int sim_shareable_export(const struct sim_chunk *chunk);

/* Fills a new chunk in from a descriptor, which stays the caller's. */
CUresult sim_shareable_import(struct sim_chunk *chunk, int fd);

/* Whether other processes may still hold a chunk of this process: then its bytes stay. */
bool sim_shareable_is_shared(const struct sim_chunk *chunk);

/* Lets go of an imported chunk. */
void sim_shareable_close(struct sim_chunk *chunk);

#endif
