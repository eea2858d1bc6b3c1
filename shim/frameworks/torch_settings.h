/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's settings, as memshim makes them (design: what is switched on under an unchanged
 * program). getenv is exported here. */
#ifndef MEMSHIM_SHIM_FRAMEWORKS_TORCH_SETTINGS_H
#define MEMSHIM_SHIM_FRAMEWORKS_TORCH_SETTINGS_H

/* The NAME=value that an interpreter of Python must find in its environment when it starts; null
 * where there is none. PyTorch's default NCCL process group aborts over the cudaMallocAsync
 * backend. */
char *ms_torch_settings_variable(void);

#endif
