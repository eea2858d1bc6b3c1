/* SPDX-License-Identifier: Apache-2.0 */
/* The table of coverage, for people: what is served, forwarded, watched or gated. */
#include <stdio.h>

#include "shim/tables/hook_table.h"
#include "shim/tables/options.h"

static const char *disposition_name(enum ms_hook_disposition disposition)
{
    static const char *const names[] = {
        [MS_HOOK_SERVED] = "served",   [MS_HOOK_FORWARDED] = "forwarded",
        [MS_HOOK_WATCHED] = "watched", [MS_HOOK_LAUNCHED] = "watched",
        [MS_HOOK_GATED] = "gated",     [MS_HOOK_TOUCHES] = "gated",
        [MS_HOOK_COMPLETES] = "gated"};
    return names[disposition];
}

void ms_hooks_print(bool markdown, ms_options_write_t write, void *ctx)
{
    char text[512];
    if (markdown) {
        write(ctx, "| function | CUDA | | what memshim does |\n|---|---|---|---|\n");
    }
    for (int row = 0; row < MS_HOOK_COUNT; row++) {
        const struct ms_hook_info *hook = &ms_hook_table[row];
        (void)snprintf(text, sizeof(text),
                       markdown ? "| `%s` | %d.%d | %s | %s |\n" : "%-40s %2d.%d  %-9s  %s\n",
                       hook->symbol, hook->version / 1000, hook->version % 1000 / 10,
                       disposition_name(hook->disposition), hook->doc);
        write(ctx, text);
    }
}
