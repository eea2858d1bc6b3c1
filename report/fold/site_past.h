/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks and tensors that are no longer live, until their lifetime in backward passes
 * (site_lifetimes.h) is known. */
#ifndef MEMSHIM_REPORT_FOLD_SITE_PAST_H
#define MEMSHIM_REPORT_FOLD_SITE_PAST_H

#include "report/fold/site_table.h"

/* Notes that live memory of the site was freed. */
void ms_site_past_note(struct ms_site_table *table, struct site *site, const struct ms_live *live,
                       uint64_t time_ns);

/* Classifies memory that was freed since the last allocation; called at the next one. end: only at
 * the run's end, else null. Nothing was allocated in between, so no peak lies there. */
void ms_site_past_judge(struct ms_site_table *table, const struct ms_run_end *end);

/* Classifies memory that is live when the run ends. */
void ms_site_past_live(struct ms_site_table *table, struct site *site, const struct ms_live *live,
                       const struct ms_run_end *end);

/* Sets the result of ms_site_table_recorded for the allocation of that number. */
void ms_site_record(struct ms_site_table *table, uint32_t allocation, int recorded);

#endif
