/* SPDX-License-Identifier: Apache-2.0 */
/* Registrations with a network card (libibverbs), whose kernel driver finds out where device memory
 * lies and uses it there from then on: the memory is pinned first. NCCL and NVSHMEM fetch these
 * functions by dlsym or dlvsym from a handle of libibverbs, so that is where they are met. A
 * program that is linked to libibverbs calls them unseen. */
#ifndef MEMSHIM_SHIM_DOOR_VERBS_H
#define MEMSHIM_SHIM_DOOR_VERBS_H

#include <stdbool.h>

/* Whether this is, exactly, the name of one that can register device memory by its address. (Memory
 * that is registered by a descriptor was pinned when that was made.) */
bool ms_verbs_known(const char *name);

/* What stands for the function of a known name that was found there, which may be null. A second
 * one of the same name (another version of it, another copy of the library) stays as it is. */
void *ms_verbs_hook(const char *name, void *found);

#endif
