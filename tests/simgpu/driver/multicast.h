/* SPDX-License-Identifier: Apache-2.0 */
/* Multicast objects: what is written to one goes to memory of every device of its team. Only a
 * kernel's multimem instructions do that, and no kernel runs here. So an object counts its team and
 * holds what is bound to it; its addresses are not accessible. All under sim_lock. */
#ifndef SIMGPU_MULTICAST_H
#define SIMGPU_MULTICAST_H

#include "driver_api.h"

#include <stdbool.h>

struct sim_chunk;
struct sim_device;
struct sim_team;

/* Waits until all devices of the team were added, as binding and mapping do (cuda.h,
 * cuMulticastAddDevice). Releases sim_lock meanwhile. */
void sim_team_await(const struct sim_team *team);

bool sim_team_has(const struct sim_team *team, const struct sim_device *device);

/* A descriptor that the caller owns, and the team of one; NULL: it is no such descriptor. */
int sim_team_export(const struct sim_team *team);
struct sim_team *sim_team_import(int fd, CUmemAllocationProp *properties, uint64_t *bytes);

/* The object's last reference is gone: unbinds all that this process has bound. */
void sim_team_end(struct sim_team *team);

#endif
