/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of other processes that this one opened by cuIpcOpenMemHandle. It is live from the first
 * open until it has been closed as often as opened. The process that allocated it is charged.
 * Thread-safe. */
#ifndef MEMSHIM_SHIM_SHARING_OPENED_H
#define MEMSHIM_SHIM_SHARING_OPENED_H

#include <stdint.h>

#include "shim/device/context.h"

void ms_opened_note(struct ms_context *context, CUdeviceptr_v2 addr, uint64_t bytes);
void ms_opened_closed(CUdeviceptr_v2 addr);

/* The context is gone, with all that it had open. */
void ms_opened_forget(const struct ms_context *context);

#endif
