/* SPDX-License-Identifier: Apache-2.0 */
/* Another process that uses the first device, as SIMGPU_OTHER says: by calls of this one. */
#ifndef SIMGPU_OTHER_H
#define SIMGPU_OTHER_H

#include "fail.h"

/* Reads SIMGPU_OTHER; says on stderr what is not understood. */
void sim_other_read(const char *text);

/* Called at the beginning of each call, without sim_lock. */
void sim_other_check(enum sim_function function, struct sim_call_number number);

#endif
