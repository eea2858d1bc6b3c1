/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who uses how much of each device's memory. Alone, a counter; with SIMGPU_SHARED, a file that all
 * processes map, with a line of figures for each process, so that ranks on one device compete for
 * its memory as they do in reality; what dead processes used is taken out of it.
 */
#ifndef SIMGPU_ACCOUNT_H
#define SIMGPU_ACCOUNT_H

#include "driver_api.h"

#include <stdint.h>

/* Called once, at cuInit. Falls back to this process alone, with a line on stderr. */
void sim_account_open(void);

/* CUDA_ERROR_OUT_OF_MEMORY, and nothing is charged, where the device has less than `bytes` left. */
CUresult sim_account_charge(int device, uint64_t bytes);
void sim_account_uncharge(int device, uint64_t bytes);

/* From now on another process holds so many bytes of the device, or what there is left. */
void sim_account_other(int device, uint64_t bytes);

uint64_t sim_account_used_here(int device);
uint64_t sim_account_used_by_all(int device);

/* Takes out now what dead processes used, also those that nobody has waited for yet. */
void sim_account_reap(void);

/* Fills `pids` and `bytes` with those that use memory on the device; returns how many there are. */
unsigned sim_account_processes(int device, unsigned capacity, uint32_t *pids, uint64_t *bytes);

#endif
