/* SPDX-License-Identifier: Apache-2.0 */
/* NVTX ranges: memshim is the injection library of programs that have no other.
 *
 * NVTX is compiled into each library that uses it. Each copy, at its first call, asks getenv for
 * NVTX_INJECTION64_PATH, opens the library of that name, and calls InitializeInjectionNvtx2 in it
 * (nvtxDetail/nvtxInit.h). shim/frameworks/torch_settings.c has the getenv. If the user or another
 * tool has set the variable, that value stands. NVTX asks for a tool that is linked into the
 * program only after the variable, through a hidden symbol that cannot be seen from outside;
 * memshim takes the place of such a tool. */
#ifndef MEMSHIM_SHIM_FRAMEWORKS_NVTX_H
#define MEMSHIM_SHIM_FRAMEWORKS_NVTX_H

/* The name of the variable. */
#define MS_NVTX_VARIABLE "NVTX_INJECTION64_PATH"

/* The value for a copy of NVTX in the library around `caller`, if nobody has set the variable: the
 * path of libmemshim, or null if memshim leaves that library alone. Static. */
char *ms_nvtx_path(const void *caller);

#endif
