/* SPDX-License-Identifier: Apache-2.0 */
/* Resolved native frames: each distinct address of a module once, and each module's file read once,
 * when the first of its addresses is needed. */
#ifndef MEMSHIM_REPORT_SYMBOLS_STACKS_PLACES_H
#define MEMSHIM_REPORT_SYMBOLS_STACKS_PLACES_H

#include "report/symbols/bump.h"
#include "report/symbols/stacks.h"

struct ms_native_place {
    struct ms_frame *frames; /* innermost first: inlined ones, then the function itself */
    uint32_t count;          /* at least 1; 0: not resolved yet */
    uint32_t role;           /* enum ms_native_role */
};

typedef struct ms_places ms_places_t;

/* For all native nodes that sites of `definitions` reach. Strings and frames live in `bump`.
 * budget_ns: limit of the time for files; modules after that stay without names; 0: no limit. Null:
 * no memory. */
ms_places_t *ms_places_new(const ms_definitions_t *definitions, enum ms_stacks_effort effort,
                           const char *modules_dir, uint64_t budget_ns, struct ms_bump *bump);
void ms_places_delete(ms_places_t *places);

/* Null: an unknown node, or no memory. */
const struct ms_native_place *ms_places_at(ms_places_t *places, uint32_t native_node);

#endif
