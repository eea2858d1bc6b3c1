/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's reports of its tensors. */
#ifndef MEMSHIM_SHIM_FRAMEWORKS_TORCH_H
#define MEMSHIM_SHIM_FRAMEWORKS_TORCH_H

/* At the end, before the trace is closed: warns if PyTorch allocated and never reported. Otherwise
 * the report would show the lack of tensors as a fact. */
void ms_torch_end(void);

#endif
