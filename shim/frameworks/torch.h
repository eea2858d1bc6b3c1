/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's reports of its tensors. */
#ifndef MEMSHIM_SHIM_FRAMEWORKS_TORCH_H
#define MEMSHIM_SHIM_FRAMEWORKS_TORCH_H

/* At the end, before the trace is closed: where PyTorch allocated and never reported, that is said,
 * lest the report show no tensors as a fact. */
void ms_torch_end(void);

#endif
