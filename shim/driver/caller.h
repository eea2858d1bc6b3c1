/* SPDX-License-Identifier: Apache-2.0 */
/* Which library an address of code lies in, of the few whose calls are answered differently. */
#ifndef MEMSHIM_SHIM_DRIVER_CALLER_H
#define MEMSHIM_SHIM_DRIVER_CALLER_H

#include <stdbool.h>

enum ms_library {
    MS_LIBRARY_OTHER,
    MS_LIBRARY_NCCL,     /* what it allocates may be registered with the network */
    MS_LIBRARY_C10_CUDA, /* PyTorch's caching allocator */
    MS_LIBRARY_TORCH,    /* the other libraries of PyTorch: libc10, libtorch... */
    MS_LIBRARY_TENSORFLOW,
    MS_LIBRARY_RUNTIME, /* the CUDA runtime, as a library of its own */
    MS_LIBRARY_CUDA     /* NVIDIA's libraries above the driver, but NCCL: cuBLAS, cuDNN... */
};

/* Remembered by ranges; the loader is asked, and its lock taken, at the first call from a library.
 * NCCL and the runtime are known by what they export, whatever their files are called; the others
 * by the names of their files. */
enum ms_library ms_library_at(const void *address);

/* What else is known of the library around an address. */
struct ms_library_facts {
    enum ms_library library;
    bool has_nccl; /* NCCL was linked into it, beside other code */
    bool is_nccl;  /* the address itself is NCCL's code */
    bool named;    /* MEMSHIM_FORWARD names the library */
};
struct ms_library_facts ms_library_facts_at(const void *address);

#endif
