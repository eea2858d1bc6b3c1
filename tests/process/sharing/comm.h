/* SPDX-License-Identifier: Apache-2.0 */
/* What stands for NCCL: it exports NCCL's first function, and allocates in it. */
#ifndef MEMSHIM_TESTS_PROCESS_COMM_H
#define MEMSHIM_TESTS_PROCESS_COMM_H

#include <stddef.h>
#include <stdint.h>

/* 0, and the address of so many bytes of the device. */
int ncclCommInitRank(uint64_t *at, size_t bytes);

#endif
