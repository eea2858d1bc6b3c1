/* SPDX-License-Identifier: Apache-2.0 */
/* The exported functions, which replace the driver's own. */
#ifndef MEMSHIM_SHIM_DOOR_ENTRY_H
#define MEMSHIM_SHIM_DOOR_ENTRY_H

#include "shim/driver/resolve.h"

/* The exported trampolines, by row. */
extern void *const ms_hook_entry[MS_HOOK_COUNT];

/* To be called first in every call that may be the process's first: prepares the rooms below, and
 * looks for the driver (ms_resolve). Any number of times. */
const struct ms_real_functions *ms_entry_open(void);

/* The hook for an address of the driver's, or the address itself if there is no hook. */
void *ms_hook_for(void *address, const struct ms_query *query);

#endif
