/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's two libraries as far as memshim knows them: calls on virtual memory come from
 * libc10_cuda.so, and births are reported through libc10.so. */
#ifndef MEMSHIM_TESTS_PROCESS_TORCH_DOUBLE_H
#define MEMSHIM_TESTS_PROCESS_TORCH_DOUBLE_H

#include <cuda.h>
#include <stdint.h>
#include <sys/types.h>

/* The allocator's settings as PyTorch reads them; null: none. */
const char *torch_settings(void);

/* The driver's calls, made from libc10_cuda.so. */
CUresult torch_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                      const CUmemAllocationProp *prop);
CUresult torch_map(CUdeviceptr at, size_t bytes, size_t offset,
                   CUmemGenericAllocationHandle handle);
CUresult torch_access(CUdeviceptr at, size_t bytes, CUdevice device, CUmemAccess_flags flags);
CUresult torch_unmap(CUdeviceptr at, size_t bytes);
CUresult torch_release(CUmemGenericAllocationHandle handle);
CUresult torch_export(int *fd, CUmemGenericAllocationHandle handle);
CUresult torch_retain(CUmemGenericAllocationHandle *handle, CUdeviceptr at);

/* A descriptor of another process, as PyTorch takes it: by pidfd_open(2) and pidfd_getfd(2). -1:
 * errno says why. */
int torch_take(pid_t process, int fd);

/* The reports, with the sum of live bytes that PyTorch would tell. */
void torch_born(CUdevice device, CUdeviceptr at, size_t bytes);
void torch_died(CUdevice device, CUdeviceptr at, size_t bytes);
/* A birth with a sum that is wrong by one byte. */
void torch_born_wrongly(CUdevice device, CUdeviceptr at, size_t bytes);

#endif
