/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Injected failures: rules that say which calls of which driver functions fail, and with what.
 * They come from SIMGPU_FAIL, and from simgpu_fail and its relatives (simgpu.h).
 */
#ifndef SIMGPU_FAIL_H
#define SIMGPU_FAIL_H

#include "entry.h"

/* The numbers of a call, from 1, from the start of the process. */
struct sim_call_number {
    uint64_t of_symbol;   /* among the calls of this exported name */
    uint64_t of_base;     /* among those of all its ABIs and flavours */
    uint64_t of_anything; /* among all calls of the driver */
};

/* The number that counts for that name. */
uint64_t sim_number_for(struct sim_function_name name, struct sim_call_number number);

/* The error that a call of `function` has to return; CUDA_SUCCESS where no rule applies to it. */
CUresult sim_fail_check(enum sim_function function, struct sim_call_number number);

/* Adds the rules of SIMGPU_FAIL; says on stderr which are not understood. */
void sim_fail_read(const char *text);

#endif
