/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's own functions.
 *
 * The trampolines (shim/door/trampolines.c) are exported under the names of hooks.def, and call
 * ms_serve_<symbol> (shim/hooks) for each call that the application makes. Those reach the driver
 * through MS_REAL alone. They run with this thread's guard set: whatever the driver or a library
 * calls in turn goes straight to the driver. */
#ifndef MEMSHIM_SHIM_DRIVER_HOOK_H
#define MEMSHIM_SHIM_DRIVER_HOOK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/locks/lock.h"
#include "shim/process/guard.h"
#include "shim/tables/cuda_api.h"
#include "shim/tables/hook_table.h"

/* The driver's own functions, by row. A null one is what this driver lacks. */
struct ms_real_functions {
#define MS_HOOK(symbol, base, version, flavour, params, args, disposition, doc) \
    CUresult(*symbol) params; /* NOLINT(bugprone-macro-parentheses): a declaration has none */
#include "shim/tables/hooks.def"
};

/* What is known of the driver once it has been seen; all null before. Published once, never freed.
 */
extern const struct ms_real_functions *_Atomic ms_real_published;

/* The driver's own function of that exported name, null where this driver lacks it. A serving
 * function's own symbol is never null while it runs. */
#define MS_REAL(symbol)             \
    (ms_lock_check_driver(#symbol), \
     atomic_load_explicit(&ms_real_published, memory_order_acquire)->symbol)

/* A driver function that has no row (cuCtxGetCurrent, cuEventQuery, ...), by its exported name,
 * null where this driver lacks it. Looks the name up each time: keep the answer. */
void *ms_real_find(const char *symbol);

#endif
