/* SPDX-License-Identifier: Apache-2.0 */
/* Sums by call site, exact after every event, in a time that does not grow with the number of
 * sites: the bytes that each site holds, and held when its device's live bytes peaked. Its only
 * outside effect is to map pages of memory. One caller at a time. */
#ifndef MEMSHIM_REPORT_FOLD_SITE_SUMS_H
#define MEMSHIM_REPORT_FOLD_SITE_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "report/fold/landmarks.h"
#include "report/fold/site_lifetimes.h"
#include "report/trace/aggregate.h"
#include "report/trace/sites.h"

#define MS_SITE_LIMIT (1u << 22) /* sites from here on count as unknown: the trace is damaged */

typedef struct ms_site_table ms_site_table_t;

/* Null: there is no memory. */
ms_site_table_t *ms_site_table_new(void);
void ms_site_table_delete(ms_site_table_t *table);

/* From here on sites were sampled (struct ms_sampling_definition). */
void ms_site_table_sample(ms_site_table_t *table, uint64_t mean_bytes);

/* The caller will not need ms_site_table_recorded for allocations up to now: frees that memory. */
void ms_site_table_hush(ms_site_table_t *table);

/* Stores all of the table (words.h), and loads it into a new one: memory that was live has the
 * first allocation numbers then. False: it is no table, and the new one is unusable. For the same
 * build only: the structs are stored as they are. */
struct ms_words_in;

void ms_site_table_store(const ms_site_table_t *table, struct ms_buffer *out);
bool ms_site_table_load(ms_site_table_t *table, struct ms_words_in *in);

/* Appends live memory that is neither forwarded nor pinned: struct ms_live. */
void ms_site_table_copy_live(const ms_site_table_t *table, struct ms_buffer *to);

/* Calls `each` for every site with live bytes, with its sums now. */
void ms_site_table_each_held(const ms_site_table_t *table, uint8_t device,
                             void (*each)(void *ctx, uint32_t site, uint64_t bytes), void *ctx);

/* Sets the phase (steps.h) of the following events; it never falls. */
void ms_site_table_enter(ms_site_table_t *table, uint32_t phase);

/* Applies one event, in the order of recording. */
void ms_site_table_apply(ms_site_table_t *table, const struct ms_event *event, uint64_t time_ns);

/* After missing events, with the device's known sums: memory that is live now has no site any more.
 * Memory at the peak keeps its sites, if that peak was seen. */
void ms_site_table_rebase(ms_site_table_t *table, uint8_t device, const struct ms_aggregate *sums);

/* Ends the table after the last event: memory that is still live, or was freed since the last
 * allocation, counts as never freed. */
struct ms_run_end {
    const ms_landmarks_t *landmarks; /* of all sites */
    uint64_t ran_out_ns; /* when memory ran out, which causes all later frees; UINT64_MAX: never */
    bool in_pass;        /* a backward pass had not ended */
};
void ms_site_table_finish(ms_site_table_t *table, const struct ms_run_end *end);

/* All site ids seen on the device are below it. */
uint32_t ms_site_table_end(const ms_site_table_t *table, uint8_t device);

/* The next id to look at: those in between did nothing on the device. */
uint32_t ms_site_table_after(const ms_site_table_t *table, uint8_t device, uint32_t site);

/* False: the site did nothing on the device. */
bool ms_site_table_read(const ms_site_table_t *table, uint8_t device, uint32_t site,
                        struct ms_site_sums *sums);

/* The lifetimes of the site's memory: of blocks and tensors that have ended, and after
 * ms_site_table_finish of all. `at_peak`: of those live at the device's peak. False as above. */
struct ms_site_lifetimes {
    uint64_t bytes[MS_LIFETIME_COUNT], at_peak_bytes[MS_LIFETIME_COUNT];
    uint32_t first_phase, last_phase;
};

bool ms_site_table_lifetimes(const ms_site_table_t *table, uint8_t device, uint32_t site,
                             struct ms_site_lifetimes *lifetimes);

/* The lifetime of one block or tensor, by the number of its allocation: these count from 0 over all
 * devices, in the order of BLOCK_ALLOC and TENSOR_ALLOC events. An enum ms_lifetime, or one of
 * these. */
enum { MS_RECORDED_ARENA = MS_LIFETIME_COUNT, MS_RECORDED_NOTHING, MS_RECORDED_COUNT };

uint8_t ms_site_table_recorded(const ms_site_table_t *table, uint32_t allocation);

/* Their number so far. */
uint32_t ms_site_table_allocations(const ms_site_table_t *table);

/* Bytes that were born in the pass of that number, from 0, and outlived it, but for what stayed
 * when later ones left theirs: gradients, mostly. */
uint64_t ms_site_table_outlived(const ms_site_table_t *table, uint64_t pass);

/* The probability that an allocation of so many bytes gets a site, 1 - exp(-bytes / mean), in parts
 * of MS_CERTAIN; never 0. */
#define MS_CERTAIN (UINT64_C(1) << 62)

uint64_t ms_sampling_chance(uint64_t bytes, uint64_t mean_bytes);

#endif
