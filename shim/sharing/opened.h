/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of other processes that this one has opened by cuIpcOpenMemHandle: live at the call that
 * opened it first, until it is closed as often. It is charged where it was allocated. Thread-safe.
 */
#ifndef MEMSHIM_SHIM_SHARING_OPENED_H
#define MEMSHIM_SHIM_SHARING_OPENED_H

#include <stdint.h>

#include "shim/device/context.h"

void ms_opened_note(struct ms_context *context, CUdeviceptr_v2 addr, uint64_t bytes);
void ms_opened_closed(CUdeviceptr_v2 addr);

/* The context is gone, and what it has open. */
void ms_opened_forget(const struct ms_context *context);

#endif
