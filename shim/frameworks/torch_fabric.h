/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch asks NVML whether a device belongs to a fabric, when it makes its first expandable
 * segment. On a device without fabrics NVML returns an error, and PyTorch warns (2.15) or stops
 * (2.13). Where memshim switched expandable segments on, PyTorch must not say or do either. */
#ifndef MEMSHIM_SHIM_FRAMEWORKS_TORCH_FABRIC_H
#define MEMSHIM_SHIM_FRAMEWORKS_TORCH_FABRIC_H

#define MS_NVML_FABRIC "nvmlDeviceGetGpuFabricInfoV"

/* The replacement for the function of that name, which was looked up in NVML; `found` may be null.
 */
void *ms_torch_fabric(void *found);

#endif
