/* SPDX-License-Identifier: Apache-2.0 */
/* Which words among a kernel's parameters may be pointers: by the offsets and sizes that
 * cuFuncGetParamInfo and cuKernelGetParamInfo (CUDA 12.4) tell, every aligned eight bytes of a
 * parameter, so that pointers inside structures are found too. Where the driver tells nothing,
 * nothing is read.
 *
 * The answers are kept by function, in a table of fixed size that is read without a lock. */
#ifndef MEMSHIM_SHIM_POLICY_PARAMETERS_H
#define MEMSHIM_SHIM_POLICY_PARAMETERS_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/driver/hook.h"

/* Calls `word` with each, of a launch of `function` with these arrays (cuLaunchKernel): its
 * parameters one by one, or all in one buffer. Asks the driver at most once for a function, and not
 * while anything captures. */
void ms_parameters_each(const void *function, void **parameters, void **extra,
                        void (*word)(void *ctx, uint64_t value), void *ctx);

/* Whether the driver knows of any function that may hold pointers. */
bool ms_parameters_known(void);

/* The program was given this kernel, which it may launch in the place of a function (cuda.h,
 * cuLaunchKernel); or this function, whose handle may have been a kernel's. */
void ms_parameters_note_kernel(const void *kernel);
void ms_parameters_note_function(const void *function);

/* Functions may be gone, and their handles given to others; called before they are. */
void ms_parameters_forget(void);

#endif
