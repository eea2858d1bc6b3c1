/* SPDX-License-Identifier: Apache-2.0 */
/* How much of this machine's memory the command uses. Weights that the CPU initializes are real,
 * and so are files in the private layer, which is in memory. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_HOST_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_HOST_H

#include <stdbool.h>
#include <stdint.h>

struct ms_dry_host {
    uint64_t limit_bytes; /* for all its processes together, and what they write; 0: unknown */
    uint64_t most_bytes;  /* the most of it at a check */
    const char *scratch;  /* where the private layer is mounted (overlay.h); null: there is none */
    int layer;            /* that folder as the command sees it, open; -1: not seen yet */
    uint64_t written_bytes; /* the most in the layer at a check; 0: next to nothing */
    uint64_t full_bytes;    /* the size of the layer, if it was full at a check; 0: it was not */
};

/* What is available now, less a part that is left to the machine. 0: unknown. */
uint64_t ms_dry_host_room(void);

/* Checks all descendants of this process. False: they hold more than the limit, or the machine has
 * next to nothing left. */
bool ms_dry_host_look(struct ms_dry_host *host);

/* The last check of the layer, when all of them have ended; frees it. */
void ms_dry_host_end(struct ms_dry_host *host);

#endif
