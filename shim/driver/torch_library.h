/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's libc10, if it is loaded: its two functions that report memory to a profiler, and the
 * one that tells whether autograd records. */
#ifndef MEMSHIM_SHIM_DRIVER_TORCH_LIBRARY_H
#define MEMSHIM_SHIM_DRIVER_TORCH_LIBRARY_H

#include <stdatomic.h>
#include <stdbool.h>

#include "report/trace/verdict.h"

#define MS_TORCH_USAGE         _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
#define MS_TORCH_OUT_OF_MEMORY _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE

#define MS_TORCH_GRAD_MODE _ZN3c108GradMode10is_enabledEv

/* Null until they are found. */
extern struct ms_torch_library {
    _Atomic(void *) usage, out_of_memory, grad_mode;
} ms_torch_library;

/* Looks for libc10 until it has been found; returns whether it has. */
bool ms_torch_library_find(void);

/* Whether the loaded PyTorch has the function with which it reports its tensors. */
bool ms_torch_library_will_report(void);

/* Whether autograd records what this thread computes, as it does not under torch.no_grad(). */
enum ms_grad_mode ms_torch_library_grad_mode(void);

/* ms_torch_library_reported: PyTorch has reported something. ms_torch_library_reports: whether it
 * has; then it reports its out-of-memories, too. */
void ms_torch_library_reported(void);
bool ms_torch_library_reports(void);

#endif
