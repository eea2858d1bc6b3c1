/* SPDX-License-Identifier: Apache-2.0 */
/* Which library a code address lies in, among the few whose calls are answered differently. */
#ifndef MEMSHIM_SHIM_DRIVER_CALLER_H
#define MEMSHIM_SHIM_DRIVER_CALLER_H

#include <stdbool.h>

enum ms_library {
    MS_LIBRARY_OTHER,
    MS_LIBRARY_NCCL,     /* its memory may be registered with the network */
    MS_LIBRARY_C10_CUDA, /* PyTorch's caching allocator */
    MS_LIBRARY_TORCH,    /* the other libraries of PyTorch: libc10, libtorch... */
    MS_LIBRARY_TENSORFLOW,
    MS_LIBRARY_RUNTIME, /* the CUDA runtime, as a library of its own */
    MS_LIBRARY_CUDA     /* NVIDIA's libraries above the driver except NCCL: cuBLAS, cuDNN... */
};

/* Cached by range. At the first call from a library the loader is asked, which takes its lock. NCCL
 * and the runtime are identified by what they export, whatever their files are called; the others
 * by their file names. */
enum ms_library ms_library_at(const void *address);

/* What else is known of the library around an address. */
struct ms_library_facts {
    enum ms_library library;
    bool has_nccl; /* NCCL is linked into it, beside other code */
    bool is_nccl;  /* the address itself is NCCL's code */
    bool named;    /* MEMSHIM_FORWARD names the library */
};
struct ms_library_facts ms_library_facts_at(const void *address);

#endif
