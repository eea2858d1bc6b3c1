/* SPDX-License-Identifier: Apache-2.0 */
/* Injected failures: rules that make certain calls of certain driver functions fail with an error.
 * They come from SIMGPU_FAIL, and from simgpu_fail and its relatives (simgpu.h). */
#ifndef SIMGPU_FAIL_H
#define SIMGPU_FAIL_H

#include "entry.h"

/* The numbers of a call, counted from 1 since the start of the process. */
struct sim_call_number {
    uint64_t of_symbol;   /* among the calls of this exported name */
    uint64_t of_base;     /* among those of all its ABIs and flavours */
    uint64_t of_anything; /* among all calls of the driver */
};

/* The number that counts for `name`. */
uint64_t sim_number_for(struct sim_function_name name, struct sim_call_number number);

/* The error that a call of `function` must return; CUDA_SUCCESS if no rule applies. */
CUresult sim_fail_check(enum sim_function function, struct sim_call_number number);

/* Adds the rules of SIMGPU_FAIL; prints those that it cannot parse to stderr. */
void sim_fail_read(const char *text);

#endif
