/* From load to end: what happens around a process's start, its forks, and its exit. */
#ifndef MEMSHIM_SHIM_LIFE_H
#define MEMSHIM_SHIM_LIFE_H

#include <stdbool.h>

/* True in a fork child of a process that used the driver: every hook goes straight to the driver,
 * nothing is said, nothing is written. */
bool ms_life_inert(void);

/* The process is about to use the driver: from now on its forks are watched. Once. */
void ms_life_arm(void);

/* False where the process began without a stderr: what has its number later is a file of the
 * program's. */
bool ms_life_had_stderr(void);

/* The folder in which the program started; empty where it is unknown. */
const char *ms_life_start_dir(void);

#endif
