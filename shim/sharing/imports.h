/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of other processes' pools that this process has open.
 *
 * Each is mapped at addresses of its own, chunk by chunk as in its owner. The owner is charged for
 * it, not this process. Thread-safe. */
#ifndef MEMSHIM_SHIM_SHARING_IMPORTS_H
#define MEMSHIM_SHIM_SHARING_IMPORTS_H

#include <stdbool.h>

#include "shim/device/context.h"
#include "shim/device/device.h"

/* Whether a handle is from a process that runs under memshim. */
bool ms_imports_know(const CUipcMemHandle_v1 *handle);

/* Opens such a handle in the context, as cuIpcOpenMemHandle does. Returns within about a second
 * after the owner last answered. */
CUresult ms_imports_open(struct ms_context *context, const CUipcMemHandle_v1 *handle,
                         CUdeviceptr_v2 *out);

/* Closes it once; false: nothing is open there. */
bool ms_imports_close(CUdeviceptr_v2 addr, CUresult *result);

/* The open block around addr. */
struct ms_import_view {
    CUdeviceptr_v2 addr;
    uint64_t bytes;
    uint64_t id;
    struct ms_context *context; /* the one that opened it */
    bool marked;
};
bool ms_imports_at(CUdeviceptr_v2 addr, struct ms_import_view *out);

/* As ms_pool_mark does; false: nothing is open there. */
bool ms_imports_mark(CUdeviceptr_v2 addr, bool marked);

/* The context is gone, with all that it had open. */
void ms_imports_forget(const struct ms_context *context);

#endif
