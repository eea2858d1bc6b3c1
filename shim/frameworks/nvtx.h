/* SPDX-License-Identifier: Apache-2.0 */
/* NVTX ranges: memshim is the injection library of programs that have no other.
 *
 * NVTX is compiled into whatever uses it. Each copy, at its first call, asks getenv for
 * NVTX_INJECTION64_PATH, opens the library of that name, and calls InitializeInjectionNvtx2 in it
 * (nvtxDetail/nvtxInit.h). shim/frameworks/torch_settings.c has the getenv. What the user or
 * another tool has put into the variable stands. A tool that is linked into a program is asked by
 * NVTX after the variable, through a hidden symbol that nobody outside can see: memshim takes its
 * place. */
#ifndef MEMSHIM_SHIM_FRAMEWORKS_NVTX_H
#define MEMSHIM_SHIM_FRAMEWORKS_NVTX_H

/* The name of the variable. */
#define MS_NVTX_VARIABLE "NVTX_INJECTION64_PATH"

/* What a copy of NVTX in the library that `caller` lies in is to find in the variable where nobody
 * has set it: the path of libmemshim, or null where memshim stays out. Static. */
char *ms_nvtx_path(const void *caller);

#endif
