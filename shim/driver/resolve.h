/* SPDX-License-Identifier: Apache-2.0 */
/* Where the driver is, and which of its addresses has a hook. */
#ifndef MEMSHIM_SHIM_DRIVER_RESOLVE_H
#define MEMSHIM_SHIM_DRIVER_RESOLVE_H

#include <stdbool.h>

#include "shim/driver/hook.h"

/* The functions before the driver was found: all null. */
extern const struct ms_real_functions ms_real_none;

/* Finds the loaded libcuda, builds the map, and publishes both. Returns what is published:
 * &ms_real_none while no libcuda is loaded. Any thread, any number of times; takes no lock of
 * ours. */
const struct ms_real_functions *ms_resolve(void);

/* The row of exactly this exported name; -1 if there is none. */
int ms_hook_of_symbol(const char *symbol);

/* The query that got an address from the driver's resolver: the name and, from cuGetProcAddress,
 * version and flags (version 0: from dlsym). It matters only if rows share an address. */
struct ms_query {
    const char *name;
    int version;
    uint64_t flags;
};

/* The row of hooks.def that fits the query best, among those whose driver function has this
 * address; -1: none. */
int ms_row_at(const void *address, const struct ms_query *query);

/* The program looked up one of the driver's functions in a way that memshim answers. */
void ms_resolve_note_asked(void);

/* At the end of the process: true if libcuda was loaded by dlopen and initialized, and yet none of
 * its functions was looked up through memshim. */
bool ms_resolve_bypassed(void);

#endif
