/* SPDX-License-Identifier: Apache-2.0 */
/* The table of hooks (hooks.def): every driver function that memshim hooks. */
#ifndef MEMSHIM_SHIM_TABLES_HOOK_TABLE_H
#define MEMSHIM_SHIM_TABLES_HOOK_TABLE_H

enum ms_hook_disposition {
    MS_HOOK_SERVED,
    MS_HOOK_FORWARDED,
    MS_HOOK_WATCHED,
    MS_HOOK_LAUNCHED,
    MS_HOOK_GATED,
    MS_HOOK_TOUCHES,
    MS_HOOK_COMPLETES
};
enum ms_hook_flavour { MS_HOOK_ANY, MS_HOOK_LEGACY, MS_HOOK_PER_THREAD };

/* One index for each row of hooks.def. */
enum ms_hook_id {
#define MS_HOOK(symbol, base, version, flavour, params, args, disposition, doc) MS_HOOK_ID_##symbol,
#include "shim/tables/hooks.def"
    MS_HOOK_COUNT
};

struct ms_hook_info {
    const char *symbol;
    const char *base;
    int version;
    enum ms_hook_flavour flavour;
    enum ms_hook_disposition disposition;
    const char *doc;
};
extern const struct ms_hook_info ms_hook_table[MS_HOOK_COUNT]; /* by enum ms_hook_id */

#endif
