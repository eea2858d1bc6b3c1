/*
 * Memory and events of other processes. A handle names the process, one of its open files and a
 * place in it; the other side opens /proc/PID/fd/N. Both run under the same user, as CUDA asks,
 * too.
 */
#ifndef SIMGPU_IPC_H
#define SIMGPU_IPC_H

#include "driver_api.h"

#include <stdbool.h>
#include <stdint.h>

/* In memory that processes share: how often an event was recorded, and how many of its records
 * streams have reached. */
struct sim_ipc_event;

/* Makes the event's shared part; false: not possible. */
bool sim_ipc_event_open(CUevent event);
void sim_ipc_event_close(CUevent event);

void sim_ipc_event_recorded(struct sim_ipc_event *event, uint64_t version);
void sim_ipc_event_reached(struct sim_ipc_event *event, uint64_t version);
bool sim_ipc_event_is_complete(const struct sim_ipc_event *event);
uint64_t sim_ipc_event_latest(const struct sim_ipc_event *event);
bool sim_ipc_event_reached_version(const struct sim_ipc_event *event, uint64_t version);

#endif
