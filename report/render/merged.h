/* SPDX-License-Identifier: Apache-2.0 */
/* One report of several processes: the ranks of a run side by side, who died first, who stands out.
 * Models are read one after the other, so that the number of ranks costs little memory. */
#ifndef MEMSHIM_REPORT_RENDER_MERGED_H
#define MEMSHIM_REPORT_RENDER_MERGED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "allocator/base/json.h"
#include "report/model/compare/site_match.h"
#include "report/model/model.h"

/* What is kept of each process. */
struct ms_rank {
    char folder[256]; /* last component of its path */
    char program[64];
    char host[64];
    char run_id[128];
    char version[32]; /* of the memshim that recorded it */
    int32_t rank, pid, world_size;
    enum ms_process_end end;
    bool exit_known;
    int32_t exit_status;
    uint64_t start_unix_ns, duration_ns;
    uint64_t peak_live_bytes, peak_reserved_bytes, peak_charged_bytes, cap_bytes; /* main device */
    int main_device;                                                              /* -1: none */
    int64_t fragmentation_ppm; /* -1: not known */
    uint64_t ooms;
    bool died_of_oom;
    uint64_t oom_unix_ns;
    struct ms_buffer answer; /* the first lines of its own report.txt, but for the head */
};

/* What a call site held on the main device of one process when its live bytes peaked. */
struct ms_rank_holding {
    size_t site; /* of the match */
    size_t rank; /* in the order of adding */
    uint64_t bytes;
};

struct ms_merged {
    struct ms_buffer ranks; /* struct ms_rank, in the order of adding */
    struct ms_site_match match;
    struct ms_buffer holdings; /* struct ms_rank_holding: the largest of each process */
    struct ms_buffer members;  /* the processes' own reports, as JSON */
    struct ms_json json;       /* into members */
};

void ms_merged_begin(struct ms_merged *merged);
void ms_merged_add(struct ms_merged *merged, const struct ms_model *model);
void ms_merged_free(struct ms_merged *merged);

size_t ms_merged_count(const struct ms_merged *merged); /* processes */
const struct ms_rank *ms_merged_rank(const struct ms_merged *merged, size_t index);

/* ---- what is written: merged_text.c, merged_json.c ---- */

void ms_merged_text(const struct ms_merged *merged, struct ms_buffer *out);
void ms_merged_json_run(const struct ms_merged *merged, struct ms_json *json); /* its own members */
void ms_merged_json(const struct ms_merged *merged, struct ms_buffer *out);

/* Its first line, without a full stop: "1 of 2 processes ran out of memory; rank 1 died first". */
void ms_merged_add_headline(const struct ms_merged *merged, struct ms_buffer *out);

/* ---- who stands out ---- */

/* The process that ran out of memory first, or, where none did, the first that did not end with
 * status 0 (a process that still runs has not); null where all is well. */
const struct ms_rank *ms_merged_first_dead(const struct ms_merged *merged);

/* The process whose charged peak is furthest from the median of all, by more than a tenth of it;
 * where none is, the one whose peak of live bytes is. Rank null where there is neither, and for
 * fewer than three. */
struct ms_outlier {
    const struct ms_rank *rank;
    bool by_live; /* the sizes are of live bytes, not of charged ones */
    uint64_t bytes, median_bytes;
};

/* Of the peaks of charged bytes, or of live ones; 0 where there is no process. */
uint64_t ms_merged_median_peak(const struct ms_merged *merged, bool by_live);

struct ms_outlier ms_merged_outlier(const struct ms_merged *merged);

/* The call site by which the outlier differs most from the median of all, in the direction in which
 * its peak does. */
struct ms_outlier_site {
    size_t site; /* of merged->match */
    uint64_t bytes, median_bytes;
};

/* False where nobody stands out, or no call site tells why. */
bool ms_merged_outlier_site(const struct ms_merged *merged, struct ms_outlier_site *found);

#endif
