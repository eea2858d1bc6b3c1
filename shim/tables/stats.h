/* SPDX-License-Identifier: Apache-2.0 */
/* The statistics of stats.def, and how they are printed. */
#ifndef MEMSHIM_SHIM_TABLES_STATS_H
#define MEMSHIM_SHIM_TABLES_STATS_H

#include <stdbool.h>
#include <stddef.h>

#include "shim/memshim.h"
#include "shim/tables/options.h"

enum ms_stat_unit {
    MS_STAT_BYTES,
    MS_STAT_COUNT,
    MS_STAT_NS,
    MS_STAT_STATUS,
    MS_STAT_RATIO /* a double; all others are uint64_t */
};
enum ms_stat_type { MS_STAT_GAUGE, MS_STAT_COUNTER };

struct ms_stat {
    const char *name;   /* of the member */
    const char *metric; /* "memshim_used_bytes" */
    const char *meaning;
    enum ms_stat_unit unit;
    enum ms_stat_type type;
};

enum ms_stat_id {
#define MS_STATISTIC(name, unit, type, metric, meaning) MS_STAT_ID_##name,
#include "shim/tables/stats.def"
    MS_STAT_ID_COUNT
};
extern const struct ms_stat ms_stat_table[MS_STAT_ID_COUNT]; /* in the order of the members */

enum ms_process_stat_id {
#define MS_PROCESS_STATISTIC(name, unit, type, metric, meaning) MS_PROCESS_STAT_ID_##name,
#include "shim/tables/stats.def"
    MS_PROCESS_STAT_ID_COUNT
};
extern const struct ms_stat ms_process_stat_table[MS_PROCESS_STAT_ID_COUNT];

/* Computes the statistics that follow from the others: free_bytes. group_cap_bytes: the cap that
 * the process shares, which may be larger than its own; its own if it shares none. */
void ms_stats_derive(struct memshim_stats *stats, uint64_t group_cap_bytes);

/* Prints the table for people (plain), or as a Markdown table. */
void ms_statistics_print(bool markdown, ms_options_write_t write, void *ctx);

#endif
