/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a process is there still, and is the same: its number may be another's by now. */
#ifndef MEMSHIM_SHIM_GROUP_ALIVE_H
#define MEMSHIM_SHIM_GROUP_ALIVE_H

#include <stdbool.h>
#include <stdint.h>

/* When the process started, in clock ticks since the machine did; 0 where that cannot be read. */
uint64_t ms_start_ticks(uint32_t pid);

/* False only where the process has ended, so that the driver has taken its memory back: it is not
 * there, another has its number, or nothing of it is left but what its parent has not waited for.
 * True also where that cannot be found out. */
bool ms_process_lives(uint32_t pid, uint64_t start_ticks);

/* The number of this process's namespace of process ids; 0 where it cannot be read. Members of a
 * group see each other's processes only inside one. */
uint64_t ms_pid_namespace(void);

#endif
