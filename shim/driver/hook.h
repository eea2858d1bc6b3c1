/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's own functions.
 *
 * The trampolines (shim/door/trampolines.c) are exported under the names of hooks.def. They call
 * ms_serve_<symbol> (shim/hooks) for each call of the application. Serving functions reach the
 * driver only through MS_REAL. They run with this thread's guard set, so that whatever the driver
 * or a library calls in turn goes straight to the driver. */
#ifndef MEMSHIM_SHIM_DRIVER_HOOK_H
#define MEMSHIM_SHIM_DRIVER_HOOK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/process/guard.h"
#include "shim/tables/cuda_api.h"
#include "shim/tables/hook_table.h"

/* The driver's own functions, by row; null for those that this driver lacks. */
struct ms_real_functions {
#define MS_HOOK(symbol, base, version, flavour, params, args, disposition, doc) \
    CUresult(*symbol) params; /* NOLINT(bugprone-macro-parentheses): a declaration has none */
#include "shim/tables/hooks.def"
};

/* What is known of the driver once it has been found; all null before. Published once, never
 * freed. */
extern const struct ms_real_functions *_Atomic ms_real_published;

/* The driver's own function of that exported name; null if this driver lacks it. In a serving
 * function, its own symbol is never null. In a build with MEMSHIM_CHECKS each call checks which
 * locks its thread holds (allocator/base/locks/lock_rank.def). What a signal handler calls within
 * memshim goes past that: its trampoline takes the function out of ms_real_published. */
#ifdef MEMSHIM_CHECKS
const struct ms_real_functions *ms_real_checked(void);
#    define MS_REAL(symbol) (ms_real_checked()->symbol)
#else
#    define MS_REAL(symbol) (atomic_load_explicit(&ms_real_published, memory_order_acquire)->symbol)
#endif

/* A driver function without a row (cuCtxGetCurrent, cuEventQuery, ...), by its exported name; null
 * if this driver lacks it. Searches at each call, so keep the answer. */
void *ms_real_find(const char *symbol);

#endif
