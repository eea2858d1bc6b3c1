/* SPDX-License-Identifier: Apache-2.0 */
/* What the command takes of this machine's memory: weights that the CPU initialises are real. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_HOST_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_HOST_H

#include <stdbool.h>
#include <stdint.h>

struct ms_dry_host {
    uint64_t limit_bytes; /* that all its processes may take; 0: not known */
    uint64_t most_bytes;  /* that they had together when they were looked at */
};

/* What is available now, but for a part that the machine keeps. 0: not known. */
uint64_t ms_dry_host_room(void);

/* Looks at all processes that this one has begun, and that they have. False: it is more than the
 * limit, or the machine has next to nothing left. */
bool ms_dry_host_look(struct ms_dry_host *host);

#endif
