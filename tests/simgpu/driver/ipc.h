/* SPDX-License-Identifier: Apache-2.0 */
/* Memory, pools and events of other processes. A handle names the process, one of its open files,
 * and a place in it; the other side opens /proc/PID/fd/N. Both run under the same user, which CUDA
 * requires, too. */
#ifndef SIMGPU_IPC_H
#define SIMGPU_IPC_H

#include "driver_api.h"

#include <stdbool.h>
#include <stdint.h>

struct sim_range;

/* An event's place in memory that processes share. */
struct sim_ipc_event;

/* Makes the event's shared part; false: impossible. */
bool sim_ipc_event_open(CUevent event);
void sim_ipc_event_close(CUevent event);

/* Counts a record and returns its number, one more than the latest of any process. */
uint64_t sim_ipc_event_recorded(struct sim_ipc_event *event);
/* A stream has reached that record. */
void sim_ipc_event_reached(struct sim_ipc_event *event, uint64_t version);
uint64_t sim_ipc_event_latest(const struct sim_ipc_event *event);
bool sim_ipc_event_reached_version(const struct sim_ipc_event *event, uint64_t version);

/* Whether it is memory of another process's pool (cuMemPoolImportPointer): it is freed, not
 * closed. */
bool sim_ipc_is_of_pool(const struct sim_range *range);
/* Ends one of the times that memory of another process was opened. */
void sim_ipc_close(struct sim_range *range);
/* Releases another process's memory; the caller keeps the range itself. */
void sim_ipc_unmap(struct sim_range *range);

#endif
