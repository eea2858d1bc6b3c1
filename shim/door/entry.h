/* SPDX-License-Identifier: Apache-2.0 */
/* The exported functions, as what the driver's own are replaced by. */
#ifndef MEMSHIM_SHIM_DOOR_ENTRY_H
#define MEMSHIM_SHIM_DOOR_ENTRY_H

#include "shim/driver/resolve.h"

/* The exported trampolines, by row. */
extern void *const ms_hook_entry[MS_HOOK_COUNT];

/* What every call begins with that may be the first one: makes the rooms below ready, and looks for
 * the driver (ms_resolve). Any number of times. */
const struct ms_real_functions *ms_entry_open(void);

/* The hook that stands for the driver's address, or the address itself where none does. */
void *ms_hook_for(void *address, const struct ms_query *query);

#endif
