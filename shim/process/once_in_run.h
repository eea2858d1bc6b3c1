/* SPDX-License-Identifier: Apache-2.0 */
/* What all processes of a run would say alike, and one of them says. */
#ifndef MEMSHIM_SHIM_PROCESS_ONCE_IN_RUN_H
#define MEMSHIM_SHIM_PROCESS_ONCE_IN_RUN_H

#include <stdbool.h>

/* Whether this process is the one that says the sentence: no other process of the run, on this
 * host, has been told so and still lives. Each sentence is asked about once in a process. Keeps a
 * descriptor for the rest of the process, which forked children share. True also if that cannot be
 * found out. Keeps errno. */
bool ms_once_in_run(const char *sentence);

#endif
