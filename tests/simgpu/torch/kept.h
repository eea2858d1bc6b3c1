/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of frees that are held back until PyTorch's allocator can use the memory again. */
#ifndef SIMGPU_TORCH_KEPT_H
#define SIMGPU_TORCH_KEPT_H

#include <stddef.h>
#include <stdint.h>

/* c10::reportMemoryUsageToProfiler; the device: two signed bytes, type and index. */
typedef void usage_t(void *at, int64_t bytes, size_t allocated, size_t reserved, uint16_t device);

/* The next function after this library: memshim's, otherwise libc10's own. Null: none. */
usage_t *usage_next(void);

/* Passes the report on, or holds a free back. */
void kept_report(usage_t *next, void *at, int64_t bytes, size_t allocated, size_t reserved,
                 uint16_t device);

#endif
