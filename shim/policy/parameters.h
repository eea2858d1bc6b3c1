/* SPDX-License-Identifier: Apache-2.0 */
/* Which words among a kernel's parameters may be pointers. cuFuncGetParamInfo and
 * cuKernelGetParamInfo (CUDA 12.4) give the offsets and sizes of parameters. Every aligned eight
 * bytes of a parameter count, so that pointers inside structures are found. Without an answer of
 * the driver's nothing is read.
 *
 * Answers are cached by function, in a table of fixed size that is read without a lock. */
#ifndef MEMSHIM_SHIM_POLICY_PARAMETERS_H
#define MEMSHIM_SHIM_POLICY_PARAMETERS_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/driver/hook.h"

/* Calls `word` with each such word of a launch of `function` with these arrays (cuLaunchKernel):
 * single parameters, or all in one buffer. Asks the driver at most once for a function, and never
 * during a capture. */
void ms_parameters_each(const void *function, void **parameters, void **extra,
                        void (*word)(void *ctx, uint64_t value), void *ctx);

/* Whether any function was found so far that may take pointers. */
bool ms_parameters_known(void);

/* The program got this kernel, which it may launch in the place of a function (cuda.h,
 * cuLaunchKernel); or this function, whose handle may have been a kernel's before. */
void ms_parameters_note_kernel(const void *kernel);
void ms_parameters_note_function(const void *function);

/* To be called before functions go: their handles may then name others. */
void ms_parameters_forget(void);

#endif
