/* SPDX-License-Identifier: Apache-2.0 */
/* JAX's memory on CUDA devices: makes XLA's plugin ask the driver for each array. */
#ifndef MEMSHIM_SHIM_FRAMEWORKS_JAX_H
#define MEMSHIM_SHIM_FRAMEWORKS_JAX_H

/* The entry of a plugin of XLA's. */
#define MS_JAX_ENTRY "GetPjrtApi"

/* The replacement for the entry that was found in a plugin; `found` may be null. The entry of a
 * second plugin, or of another copy, is not replaced. */
void *ms_jax_entry(void *found);

#endif
