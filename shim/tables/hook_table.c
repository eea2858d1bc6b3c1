/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of hooks.def. */
#include "shim/tables/hook_table.h"

const struct ms_hook_info ms_hook_table[MS_HOOK_COUNT] = {
#define MS_HOOK(symbol, base, version, flavour, params, args, disposition, doc) \
    {#symbol, #base, version, MS_HOOK_##flavour, MS_HOOK_##disposition, doc},
#include "shim/tables/hooks.def"
};
