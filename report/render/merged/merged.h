/* SPDX-License-Identifier: Apache-2.0 */
/* One report of several processes: the ranks of a run side by side, the first to die, the one that
 * stands out. Models are read one after the other, so that many ranks need little memory. */
#ifndef MEMSHIM_REPORT_RENDER_MERGED_MERGED_H
#define MEMSHIM_REPORT_RENDER_MERGED_MERGED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "allocator/base/json.h"
#include "report/model/compare/site_match.h"
#include "report/model/model.h"

/* The data kept of each process. */
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
    uint64_t start_unix_ns, duration_ns; /* the start by the clock that all share */
    int64_t clock_ahead_ns;              /* of the host's own to that; 0: the same */
    uint64_t peak_live_bytes, peak_reserved_bytes, peak_charged_bytes, cap_bytes; /* main device */
    int main_device;                                                              /* -1: none */
    int64_t fragmentation_ppm;                                                    /* -1: unknown */
    uint64_t ooms;
    bool died_of_oom;
    uint64_t oom_unix_ns;
    struct ms_buffer answer; /* the first lines of its own report.txt, without the head */
};

/* A call site's bytes on a process's main device when its live bytes peaked. */
struct ms_rank_holding {
    size_t site; /* of the match */
    size_t rank; /* in the order of adding */
    uint64_t bytes;
};

struct ms_merged {
    struct ms_buffer ranks; /* struct ms_rank, in the order of adding */
    struct ms_site_match match;
    struct ms_buffer holdings; /* struct ms_rank_holding: the largest ones of each process */
    struct ms_buffer members;  /* the processes' own reports, as JSON */
    struct ms_json json;       /* writes into members */
};

void ms_merged_begin(struct ms_merged *merged);
void ms_merged_add(struct ms_merged *merged, const struct ms_model *model);
void ms_merged_free(struct ms_merged *merged);

size_t ms_merged_count(const struct ms_merged *merged); /* processes */
bool ms_merged_runs(const struct ms_merged *merged);    /* whether one of them still runs */
const struct ms_rank *ms_merged_rank(const struct ms_merged *merged, size_t index);

/* ---- output: merged_text.c, merged_json.c ---- */

/* of_run: the files of the run exist in its folder. */
void ms_merged_text(const struct ms_merged *merged, bool of_run, struct ms_buffer *out);
void ms_merged_json_run(const struct ms_merged *merged, struct ms_json *json); /* the run's own
                                                                                  members */
void ms_merged_json(const struct ms_merged *merged, struct ms_buffer *out);

/* The first line, without a full stop: "1 of 2 processes ran out of memory; rank 1 died first". */
void ms_merged_add_headline(const struct ms_merged *merged, struct ms_buffer *out);

/* ---- the outlier ---- */

/* The process that ran out of memory first; if none did, the first that did not end with status 0
 * (not one that still runs); null: all is well. */
const struct ms_rank *ms_merged_first_dead(const struct ms_merged *merged);

/* The process whose charged peak is furthest from the median, by more than a tenth of it; without
 * one, the process whose live peak is. Rank null: there is neither, or there are fewer than three
 * processes. */
struct ms_outlier {
    const struct ms_rank *rank;
    bool by_live; /* the sizes are live bytes, not charged ones */
    uint64_t bytes, median_bytes;
};

/* Of the charged peaks, or of the live ones; 0: there is no process. */
uint64_t ms_merged_median_peak(const struct ms_merged *merged, bool by_live);

struct ms_outlier ms_merged_outlier(const struct ms_merged *merged);

/* The call site by which the outlier differs most from the median, in the same direction as its
 * peak. */
struct ms_outlier_site {
    size_t site; /* of merged->match */
    uint64_t bytes, median_bytes;
};

/* False: there is no outlier, or no call site explains it. */
bool ms_merged_outlier_site(const struct ms_merged *merged, struct ms_outlier_site *found);

#endif
