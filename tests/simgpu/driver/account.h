/* SPDX-License-Identifier: Apache-2.0 */
/* Which process uses how much of each device's memory. Without SIMGPU_SHARED, a counter. With it, a
 * file that all processes map, with a line of figures for each process, so that ranks on one device
 * compete for its memory as in reality. What dead processes used is subtracted. */
#ifndef SIMGPU_ACCOUNT_H
#define SIMGPU_ACCOUNT_H

#include "driver_api.h"

#include <stdint.h>

/* Called once, at cuInit. If the file cannot be used, prints a line to stderr and counts this
 * process alone. */
void sim_account_open(void);

/* CUDA_ERROR_OUT_OF_MEMORY, and nothing is charged, if the device has less than `bytes` left. */
CUresult sim_account_charge(int device, uint64_t bytes);
void sim_account_uncharge(int device, uint64_t bytes);

/* From now on another process holds this many bytes of the device, or as many as are left. */
void sim_account_other(int device, uint64_t bytes);

uint64_t sim_account_used_here(int device);
uint64_t sim_account_used_by_all(int device);

/* The same without what zombies used, looked at and added up in one moment: between two, one
 * process may end and another take its place. */
uint64_t sim_account_used_by_living(int device);

/* Fills `pids` and `bytes` with the processes that use memory on the device; returns how many there
 * are. */
unsigned sim_account_processes(int device, unsigned capacity, uint32_t *pids, uint64_t *bytes);

#endif
