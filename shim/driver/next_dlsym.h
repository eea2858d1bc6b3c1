/* SPDX-License-Identifier: Apache-2.0 */
/* The next dlsym after ours: the C library's, or that of another preloaded library. */
#ifndef MEMSHIM_SHIM_DRIVER_NEXT_DLSYM_H
#define MEMSHIM_SHIM_DRIVER_NEXT_DLSYM_H

#include <stdatomic.h>

typedef void *(*ms_dlsym_t)(void *, const char *);
typedef void *(*ms_dlvsym_t)(void *, const char *, const char *);

/* Where the exported functions (shim/door/dlsym.c) jump to; null until ms_next_dlsym_function was
 * first called. */
extern __attribute__((visibility("hidden"))) _Atomic(ms_dlsym_t) ms_next_dlsym;
extern __attribute__((visibility("hidden"))) _Atomic(ms_dlvsym_t) ms_next_dlvsym;

/* Never null. */
ms_dlsym_t ms_next_dlsym_function(void);

/* Calls it. */
void *ms_real_dlsym(void *handle, const char *name);

#endif
