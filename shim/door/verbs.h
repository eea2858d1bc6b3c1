/* SPDX-License-Identifier: Apache-2.0 */
/* Registrations with a network card (libibverbs). The card's kernel driver finds out where device
 * memory lies and uses it there from then on, so the memory is pinned first. NCCL and NVSHMEM get
 * these functions by dlsym or dlvsym from a handle of libibverbs; memshim replaces them there. A
 * program that is linked to libibverbs calls them without memshim's notice. */
#ifndef MEMSHIM_SHIM_DOOR_VERBS_H
#define MEMSHIM_SHIM_DOOR_VERBS_H

#include <stdbool.h>

/* Whether this is exactly the name of a function that can register device memory by address.
 * (Memory registered by a descriptor was pinned when that was made.) */
bool ms_verbs_known(const char *name);

/* The replacement for the function that was found under a known name; `found` may be null. A second
 * function of that name (another version, another copy of the library) is not replaced. */
void *ms_verbs_hook(const char *name, void *found);

#endif
