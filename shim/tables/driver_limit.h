/* SPDX-License-Identifier: Apache-2.0 */
/* Limits on this process's device memory that are not memshim's. memshim recognizes them so that a
 * refusal is not attributed to something else, and can name them. */
#ifndef MEMSHIM_SHIM_TABLES_DRIVER_LIMIT_H
#define MEMSHIM_SHIM_TABLES_DRIVER_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "report/trace/verdict.h"

struct ms_driver_limit {
    enum ms_limited_by by;
    uint64_t bytes;      /* 0: no limit */
    uint64_t used_bytes; /* what everybody in the group uses of it; 0: unknown */
};

/* Of the control groups of this process and those above it, the limit that leaves least: dmem.max
 * and dmem.current (the kernel's cgroup-v2.rst, "DMEM Interface Files": a line for each region).
 * NVIDIA's driver calls a device's memory nvidia/<PCI address>/vidmem there, from r615 on (NVIDIA
 * Dynamo, "Per-GPU Compute and Memory Limits with MPS"). pci: as from cuDeviceGetPCIBusId. `root`
 * is put before the paths of /proc and /sys ("" except in tests). */
struct ms_driver_limit ms_limit_of_group(const char *root, const char *pci);

/* The limit of an MPS client: `setting` is CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, "0=1G,1=512MB"
 * (NVIDIA's MPS documentation); null: not set. A limit that was given to the MPS server cannot be
 * seen. Pure. */
struct ms_driver_limit ms_limit_of_mps(const char *setting, int ordinal);

/* The limit that leaves less. */
struct ms_driver_limit ms_limit_tighter(struct ms_driver_limit a, struct ms_driver_limit b);

/* PyTorch's own limit: per_process_memory_fraction in PYTORCH_ALLOC_CONF or an older name of it
 * (PyTorch 2.15, c10/cuda/CUDAAllocatorConfig.h), applied to total_bytes. */
struct ms_driver_limit ms_limit_of_torch(char *const *environment, uint64_t total_bytes);

#endif
