/* SPDX-License-Identifier: Apache-2.0 */
/* Another file of memshim in the same process: two versions, or one version installed twice, both
 * in LD_PRELOAD. The program's calls and those of memshim.h reach the first one alone, so it
 * serves, and each one behind it does nothing. */
#ifndef MEMSHIM_SHIM_DOOR_SECOND_COPY_H
#define MEMSHIM_SHIM_DOOR_SECOND_COPY_H

#include <stdbool.h>

/* memshim_version of this file, whichever one the exported name stands for (interface.c). */
const char *ms_own_version(void);

/* True where this file is not the first. Two loads: it is asked while each program starts. */
bool ms_copy_before(void);

/* The path of the next one, of the loader's memory; null where there is none. */
const char *ms_copy_behind(void);

#endif
