/* SPDX-License-Identifier: Apache-2.0 */
/* A device at a standstill, and copies meanwhile: the device operations halt, resume, copy and
 * copy_wait (allocator/device/device_ops.h), and what the whole process must know of them. */
#ifndef MEMSHIM_SHIM_DEVICE_OPERATIONS_STANDSTILL_H
#define MEMSHIM_SHIM_DEVICE_OPERATIONS_STANDSTILL_H

#include "allocator/device/device_ops.h"

/* Closes the gate for the whole process, and waits for the end of the work of the device and its
 * peers. One standstill at a time: another thread waits for it within its limit. Between halt and
 * resume, which the same thread calls, that thread cannot be cancelled (pthread_cancel). */
ms_status_t ms_standstill_halt(void *ctx, uint64_t timeout_ns);
void ms_standstill_resume(void *ctx);
ms_status_t ms_standstill_copy(void *ctx, ms_addr_t to, ms_addr_t from, uint64_t bytes);
ms_status_t ms_standstill_copy_wait(void *ctx, uint64_t left);

#endif
