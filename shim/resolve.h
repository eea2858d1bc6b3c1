/* Where the driver is, and which of its addresses has a hook. */
#ifndef MEMSHIM_SHIM_RESOLVE_H
#define MEMSHIM_SHIM_RESOLVE_H

#include <stdbool.h>

#include "shim/hook.h"

/* The exported trampolines, by row. */
extern void *const ms_hook_entry[MS_HOOK_COUNT];

/* Before the driver has been seen: every function null. */
extern const struct ms_real_functions ms_real_none;

/* Finds the loaded libcuda, builds the map, publishes both. Returns what is published:
 * &ms_real_none while no libcuda is loaded. Any thread, any number of times; takes no lock of ours.
 */
const struct ms_real_functions *ms_resolve(void);

/* The row of an exported name, exactly; -1 for every other name. */
int ms_hook_of_symbol(const char *symbol);

/* What is asked about an address that the driver's resolver returned: the name and, on the road of
 * cuGetProcAddress, version and flags (version 0 on the road of dlsym). They decide only where rows
 * share one address. */
struct ms_query {
    const char *name;
    int version;
    uint64_t flags;
};

/* The hook that stands for the driver's address, or the address itself where none does. */
void *ms_hook_for(void *address, const struct ms_query *query);

/* The driver was asked for one of its functions on a road that passes the door. */
void ms_resolve_note_road(void);

/* At the end of the process: true where libcuda was loaded by dlopen and initialized, and yet
 * nobody came past the door. */
bool ms_resolve_bypassed(void);

#endif
