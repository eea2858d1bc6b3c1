/* SPDX-License-Identifier: Apache-2.0 */
/* Which library an address of code lies in, of the few whose calls are answered differently. */
#ifndef MEMSHIM_SHIM_DRIVER_CALLER_H
#define MEMSHIM_SHIM_DRIVER_CALLER_H

enum ms_library {
    MS_LIBRARY_OTHER,
    MS_LIBRARY_NCCL,     /* what it allocates may be registered with the network */
    MS_LIBRARY_C10_CUDA, /* PyTorch's caching allocator */
    MS_LIBRARY_TORCH,    /* the other libraries of PyTorch: libc10, libtorch... */
    MS_LIBRARY_TENSORFLOW,
    MS_LIBRARY_CUDA /* NVIDIA's libraries above the driver, but NCCL: cuBLAS, cuDNN... */
};

/* Remembered by ranges; the loader is asked, and its lock taken, at the first call from a library.
 */
enum ms_library ms_library_at(const void *address);

#endif
