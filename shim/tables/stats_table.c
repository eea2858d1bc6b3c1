/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of stats.def, and how they are printed. */
#include <stdio.h>

#include "allocator/base/arithmetic.h"
#include "shim/tables/stats.h"

#define ROW(name, unit, type, metric, meaning) \
    {#name, "memshim_" metric, meaning, MS_STAT_##unit, MS_STAT_##type},

const struct ms_stat ms_stat_table[MS_STAT_ID_COUNT] = {
#define MS_STATISTIC ROW
#include "shim/tables/stats.def"
};

const struct ms_stat ms_process_stat_table[MS_PROCESS_STAT_ID_COUNT] = {
#define MS_PROCESS_STATISTIC ROW
#include "shim/tables/stats.def"
};

/* The table's rows are the members of the struct, in the same order, eight bytes each. */
#define MS_STATISTIC(name, unit, type, metric, meaning)                                       \
    _Static_assert(offsetof(struct memshim_stats, name) == 8 + 8 * (size_t)MS_STAT_ID_##name, \
                   #name " has its place in the struct");
#include "shim/tables/stats.def"
_Static_assert(sizeof(struct memshim_stats) == 8 + 8 * (size_t)MS_STAT_ID_COUNT,
               "every member of the struct has a row");

void ms_stats_derive(struct memshim_stats *stats, uint64_t group_cap_bytes)
{
    const uint64_t own = ms_less(stats->cap_bytes, stats->used_bytes);
    const uint64_t all = ms_less(group_cap_bytes, stats->used_bytes + stats->others_bytes);
    stats->free_bytes = own < all ? own : all;
}

static void print_row(const struct ms_stat *row, const char *of, bool markdown,
                      ms_options_write_t write, void *ctx)
{
    static const char *const units[] = {"bytes", "count", "ns", "0 to 3", "0 to 1"};
    char line[512];
    (void)snprintf(line, sizeof(line),
                   markdown ? "| `%s` | %s | %s, %s | `%s` | %s |\n"
                            : "%-16s %-8s %-7s %-8s %-33s %s\n",
                   row->name, of, units[row->unit],
                   row->type == MS_STAT_COUNTER ? "counter" : "gauge", row->metric, row->meaning);
    write(ctx, line);
}

void ms_statistics_print(bool markdown, ms_options_write_t write, void *ctx)
{
    if (markdown) {
        write(ctx, "| statistic | of a | is | Prometheus | meaning |\n|---|---|---|---|---|\n");
    }
    for (size_t i = 0; i < MS_STAT_ID_COUNT; i++) {
        print_row(&ms_stat_table[i], "device", markdown, write, ctx);
    }
    for (size_t i = 0; i < MS_PROCESS_STAT_ID_COUNT; i++) {
        print_row(&ms_process_stat_table[i], "process", markdown, write, ctx);
    }
}
