/* SPDX-License-Identifier: Apache-2.0 */
/* JAX's memory on CUDA devices: XLA's plugin is told to ask the driver for each array. */
#ifndef MEMSHIM_SHIM_FRAMEWORKS_JAX_H
#define MEMSHIM_SHIM_FRAMEWORKS_JAX_H

/* The name by which a plugin of XLA's is entered. */
#define MS_JAX_ENTRY "GetPjrtApi"

/* What stands for the entry of a plugin that was found, which may be null. A second one (another
 * plugin, another copy) stays as it is. */
void *ms_jax_entry(void *found);

#endif
