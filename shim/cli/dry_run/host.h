/* SPDX-License-Identifier: Apache-2.0 */
/* How much of this machine's memory the command uses. Weights that the CPU initializes are real. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_HOST_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_HOST_H

#include <stdbool.h>
#include <stdint.h>

struct ms_dry_host {
    uint64_t limit_bytes; /* for all its processes together; 0: unknown */
    uint64_t most_bytes;  /* the most that they held together at a check */
};

/* What is available now, less a part that is left to the machine. 0: unknown. */
uint64_t ms_dry_host_room(void);

/* Checks all descendants of this process. False: they hold more than the limit, or the machine has
 * next to nothing left. */
bool ms_dry_host_look(struct ms_dry_host *host);

#endif
