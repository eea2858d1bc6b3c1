/* SPDX-License-Identifier: Apache-2.0 */
/* Where the driver is, and which of its addresses has a hook. */
#ifndef MEMSHIM_SHIM_DRIVER_RESOLVE_H
#define MEMSHIM_SHIM_DRIVER_RESOLVE_H

#include <stdbool.h>

#include "shim/driver/hook.h"

/* Before the driver has been seen: every function null. */
extern const struct ms_real_functions ms_real_none;

/* Finds the loaded libcuda, builds the map, publishes both. Returns what is published:
 * &ms_real_none while no libcuda is loaded. Any thread, any number of times; takes no lock of ours.
 */
const struct ms_real_functions *ms_resolve(void);

/* The row of an exported name, exactly; -1 for every other name. */
int ms_hook_of_symbol(const char *symbol);

/* What is asked about an address that the driver's resolver returned: the name and, from
 * cuGetProcAddress, version and flags (version 0 from dlsym). They decide only where rows
 * share one address. */
struct ms_query {
    const char *name;
    int version;
    uint64_t flags;
};

/* The row of hooks.def that fits the query best among those whose function of the driver's has this
 * address; -1: none has. */
int ms_row_at(const void *address, const struct ms_query *query);

/* The program asked for one of the driver's functions in a way that memshim answers. */
void ms_resolve_note_asked(void);

/* At the end of the process: true where libcuda was loaded by dlopen and initialized, and yet
 * none of its functions was asked for through memshim. */
bool ms_resolve_bypassed(void);

#endif
