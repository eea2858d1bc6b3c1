/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's libc10, where it is loaded: its two functions that tell a profiler of memory. */
#ifndef MEMSHIM_SHIM_DRIVER_TORCH_LIBRARY_H
#define MEMSHIM_SHIM_DRIVER_TORCH_LIBRARY_H

#include <stdatomic.h>
#include <stdbool.h>

#define MS_TORCH_USAGE         _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
#define MS_TORCH_OUT_OF_MEMORY _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE

/* Null where they have not been found. */
extern struct ms_torch_library {
    _Atomic(void *) usage, out_of_memory;
} ms_torch_library;

/* Looks for libc10 until it has been found once; whether it has. */
bool ms_torch_library_find(void);

/* Whether PyTorch, which is loaded, has the function by which it reports its tensors. */
bool ms_torch_library_will_report(void);

/* PyTorch has reported something; whether it has: then it reports its out-of-memories, too. */
void ms_torch_library_reported(void);
bool ms_torch_library_reports(void);

#endif
