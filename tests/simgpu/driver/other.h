/* SPDX-License-Identifier: Apache-2.0 */
/* Another process that uses the first device, as set by SIMGPU_OTHER: what it holds changes at
 * certain calls of this process. */
#ifndef SIMGPU_OTHER_H
#define SIMGPU_OTHER_H

#include "fail.h"

/* Reads SIMGPU_OTHER; prints what it cannot parse to stderr. */
void sim_other_read(const char *text);

/* Called at the beginning of each call, without sim_lock. */
void sim_other_check(enum sim_function function, struct sim_call_number number);

#endif
