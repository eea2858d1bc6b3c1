/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a process still lives and is the same one: its id may belong to another by now. */
#ifndef MEMSHIM_SHIM_GROUP_ALIVE_H
#define MEMSHIM_SHIM_GROUP_ALIVE_H

#include <stdbool.h>
#include <stdint.h>

/* When the process started, in clock ticks since the machine's start; 0 if that cannot be read. */
uint64_t ms_start_ticks(uint32_t pid);

/* False only if the process has ended, so that the driver has taken its memory back: it does not
 * exist, another has its id, or it is a zombie. True also if that cannot be found out. */
bool ms_process_lives(uint32_t pid, uint64_t start_ticks);

/* The number of this process's pid namespace; 0 if it cannot be read. Members of a group see each
 * other's processes only inside one namespace. */
uint64_t ms_pid_namespace(void);

#endif
