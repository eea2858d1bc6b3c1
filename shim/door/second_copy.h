/* SPDX-License-Identifier: Apache-2.0 */
/* Another memshim library in the same process: two versions, or one version installed twice, both
 * in LD_PRELOAD. The program's calls and those of memshim.h reach the first one only. So that one
 * serves, and the ones behind it do nothing. */
#ifndef MEMSHIM_SHIM_DOOR_SECOND_COPY_H
#define MEMSHIM_SHIM_DOOR_SECOND_COPY_H

#include <stdbool.h>

/* memshim_version of this file, whichever file the exported name is bound to (interface.c). */
const char *ms_own_version(void);

/* True if this file is not the first. Costs two loads, because every program start calls it. */
bool ms_copy_before(void);

/* The path of the next copy, in the loader's memory; null if there is none. */
const char *ms_copy_behind(void);

#endif
