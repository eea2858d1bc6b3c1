/* SPDX-License-Identifier: Apache-2.0 */
/* Sums by call site, kept exact at every event in a time that does not grow with their number: what
 * each site holds, and what it held when its device's live bytes peaked. Its only effect
 * outside is to map pages of memory. One caller at a time. */
#ifndef MEMSHIM_REPORT_FOLD_SITE_SUMS_H
#define MEMSHIM_REPORT_FOLD_SITE_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "report/fold/site_lifetimes.h"
#include "report/trace/aggregate.h"
#include "report/trace/sites.h"

#define MS_SITE_LIMIT (1u << 22) /* sites from here on count as unknown: a damaged trace's */

typedef struct ms_site_table ms_site_table_t;

/* Null where there is no memory. */
ms_site_table_t *ms_site_table_new(void);
void ms_site_table_delete(ms_site_table_t *table);

/* Sites were given by chance from here on (struct ms_sampling_definition). */
void ms_site_table_sample(ms_site_table_t *table, uint64_t mean_bytes);

/* Whatever ms_site_table_recorded would say of allocations up to now is not asked for: its memory
 * can go. */
void ms_site_table_hush(ms_site_table_t *table);

/* Puts all of the table down (words.h), and into one that is new: then what was live has the first
 * numbers of allocations. False where that is no table: then this one is good for nothing. Of the
 * same build only: the structs lie there as they are. */
struct ms_words_in;

void ms_site_table_store(const ms_site_table_t *table, struct ms_buffer *out);
bool ms_site_table_load(ms_site_table_t *table, struct ms_words_in *in);

/* Appends what is live and not forwarded or pinned: struct ms_live. */
void ms_site_table_copy_live(const ms_site_table_t *table, struct ms_buffer *to);

/* What each site holds now: calls `each` for those with live bytes. */
void ms_site_table_each_held(const ms_site_table_t *table, uint8_t device,
                             void (*each)(void *ctx, uint32_t site, uint64_t bytes), void *ctx);

/* The phase (steps.h) that the events from here on belong to; it never falls. */
void ms_site_table_enter(ms_site_table_t *table, uint32_t phase);

/* Folds one event in, in the order in which they were recorded. */
void ms_site_table_apply(ms_site_table_t *table, const struct ms_event *event, uint64_t time_ns);

/* Events are missing, and the device's own sums are known to be these: what is live now has no site
 * any more; what was live at the peak still has, where that peak was seen. */
void ms_site_table_rebase(ms_site_table_t *table, uint8_t device, const struct ms_aggregate *sums);

/* There are no more events: what still lives, or died since the last allocation, lives for good. */
struct ms_run_end {
    uint64_t ran_out_ns; /* out of memory: what dies from here on, dies of that; UINT64_MAX: not */
    bool in_pass;        /* a backward pass had not ended */
};
void ms_site_table_finish(ms_site_table_t *table, const struct ms_run_end *end);

/* Ids of sites seen on the device are below it. */
uint32_t ms_site_table_end(const ms_site_table_t *table, uint8_t device);

/* From one id to the next one to look at: those in between did nothing on the device. */
uint32_t ms_site_table_after(const ms_site_table_t *table, uint8_t device, uint32_t site);

/* False where the site did nothing on the device. */
bool ms_site_table_read(const ms_site_table_t *table, uint8_t device, uint32_t site,
                        struct ms_site_sums *sums);

/* What became of what the site asked for: of blocks and tensors that are over, until
 * ms_site_table_finish, then of all. `at_peak` is of the device's peak. False as above. */
struct ms_site_lifetimes {
    uint64_t bytes[MS_LIFETIME_COUNT], at_peak_bytes[MS_LIFETIME_COUNT];
    uint32_t first_phase, last_phase;
};

bool ms_site_table_lifetimes(const ms_site_table_t *table, uint8_t device, uint32_t site,
                             struct ms_site_lifetimes *lifetimes);

/* What became of one block or tensor, by the number of its allocation: they are counted from 0 over
 * all devices, in the order of BLOCK_ALLOC and TENSOR_ALLOC events. An enum ms_lifetime, or one of
 * these. */
enum { MS_RECORDED_ARENA = MS_LIFETIME_COUNT, MS_RECORDED_NOTHING, MS_RECORDED_COUNT };

uint8_t ms_site_table_recorded(const ms_site_table_t *table, uint32_t allocation);

/* So far. */
uint32_t ms_site_table_allocations(const ms_site_table_t *table);

/* Bytes that were born in the pass of that number, from 0, and outlived it: gradients, mostly. */
uint64_t ms_site_table_outlived(const ms_site_table_t *table, uint64_t pass);

/* The chance with which an allocation of so many bytes gets a site: 1 - exp(-bytes / mean). */
double ms_sampling_chance(uint64_t bytes, uint64_t mean_bytes);

#endif
