/* SPDX-License-Identifier: Apache-2.0 */
/* memshim top: the memory of running processes, read from their traces without their help. */
#ifndef MEMSHIM_SHIM_CLI_TOP_TOP_H
#define MEMSHIM_SHIM_CLI_TOP_TOP_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "report/trace/format.h"
#include "shim/tables/stats.h"

#define MS_TOP_SITES_MAX 50
#define MS_TOP_TREND     12 /* parts of a run for which live bytes are shown */

/* The order of rows: by rank, host and pid; or the largest first. */
enum ms_top_sort { MS_TOP_BY_RANK, MS_TOP_BY_USED, MS_TOP_BY_LIVE, MS_TOP_BY_HOST };

struct ms_top_device {
    uint8_t index;
    char name[MS_NAME_BYTES];
    char uuid[MS_UUID_TEXT_BYTES]; /* empty: unknown */
    struct memshim_stats stats;
    /* The group whose cap it is, as of now; empty: the process's own, or not known. */
    char group[MS_NAME_BYTES];
    uint32_t group_processes;
    uint64_t group_cap_bytes;
    uint64_t trend_bytes[MS_TOP_TREND]; /* the most that was live in each part of the run so far */
    bool has_trend;
};

enum ms_top_state {
    MS_TOP_RUNNING,
    MS_TOP_ENDED,
    MS_TOP_EXITED, /* without closing its trace */
    MS_TOP_KILLED,
    MS_TOP_UNKNOWN /* it is on another host: it may run or have been killed */
};

struct ms_top_process {
    char path[PATH_MAX];          /* the folder of its trace, or the trace itself */
    char why[512];                /* not empty: it could not be read, and nothing below is valid */
    struct ms_file_header header; /* of the trace */
    enum ms_top_state state;
    bool exit_known;                               /* header.exit_status */
    uint64_t running, killed, duration_ns, events; /* stats.def */
    bool torn;                /* its figures changed too fast to be read consistently */
    struct ms_buffer devices; /* struct ms_top_device, by index */
};

/* A line of code, and what all its call sites hold. */
struct ms_top_site {
    uint8_t device;
    uint64_t bytes;
    char line[200];
};

/* What only a reading of all records of a trace gives. */
struct ms_top_sites {
    char path[PATH_MAX];                  /* as in the process */
    uint64_t unix_ns;                     /* when it was read; 0: not yet */
    bool of_end;                          /* the process had ended by then: nothing will be newer */
    uint64_t steps;                       /* recorded or found; 0: none, or unknown */
    uint64_t live_bytes[MS_DEVICE_COUNT]; /* of each device at that time; the lines below add up to
                                             it */
    bool whole;                           /* false: it could not be read */
    bool sampled;                         /* not every allocation has a call site */
    struct ms_buffer sites;               /* struct ms_top_site, the largest of each device first */
};

/* Finds the traces (struct ms_trace_path) for `target`: a folder or a trace, as for ms_traces_find;
 * digits: the process of that id and its descendants; null: the newest run in MEMSHIM_OUTPUT. False
 * if there is none, and a sentence in `why`. */
bool ms_top_find(const char *target, struct ms_buffer *found, char *why, size_t why_bytes);

/* Reads one process, as of now. Release it with ms_top_process_free. */
void ms_top_read(const char *path, struct ms_top_process *out);
void ms_top_process_free(struct ms_top_process *process);

/* Finds out which caps are shared, from the groups' files on this machine. */
void ms_top_read_groups(struct ms_top_process *processes, size_t count);

/* Reads the records: takes seconds for a long run. Release it with ms_top_sites_free. */
void ms_top_sites_read(const char *path, struct ms_top_sites *out);
void ms_top_sites_free(struct ms_top_sites *sites);

/* The same on a thread of its own, again and again, one process after the other, for a small part
 * of the time. Passes the present processes to the thread, which the first call starts. */
void ms_top_worker_want(const char *const *paths, size_t count);

/* Copies the last reading of a process; false: there is none yet. Release it with
 * ms_top_sites_free. */
bool ms_top_worker_get(const char *path, struct ms_top_sites *out);

/* What is shown at one moment. */
struct ms_top_frame {
    char target[PATH_MAX]; /* the user's choice, in words */
    uint64_t unix_ns;
    struct ms_top_process *processes; /* in the order of rank, host and pid */
    struct ms_top_sites *sites;       /* of each; unix_ns 0: none yet */
    size_t count;
    size_t most_sites; /* for each device; 0: none are shown */
    size_t width;      /* visible characters of a line; 0: all */
    bool utf8;         /* the terminal can show block characters */
};

void ms_top_text(const struct ms_top_frame *frame, struct ms_buffer *out);
void ms_top_json(const struct ms_top_frame *frame, struct ms_buffer *out); /* one line */

/* The two text forms of metrics. They differ in a counter's name in its head, and in the end. A
 * text cannot be both: node_exporter's textfile collector reads Prometheus' own form (0.0.4), and
 * OpenMetrics 1.0 forbids that head. */
enum ms_top_metrics { MS_TOP_NO_METRICS, MS_TOP_PROMETHEUS, MS_TOP_OPENMETRICS };

void ms_top_print_metrics(const struct ms_top_frame *frame, enum ms_top_metrics form,
                          struct ms_buffer *out);

/* "running", "ended", "exited", "killed", "unknown". */
const char *ms_top_state_name(enum ms_top_state state);

static inline size_t ms_top_device_count(const struct ms_top_process *process)
{
    return process->devices.bytes / sizeof(struct ms_top_device);
}

static inline const struct ms_top_device *ms_top_device_at(const struct ms_top_process *process,
                                                           size_t index)
{
    return (const struct ms_top_device *)process->devices.at + index;
}

static inline size_t ms_top_site_count(const struct ms_top_sites *sites)
{
    return sites->sites.bytes / sizeof(struct ms_top_site);
}

static inline const struct ms_top_site *ms_top_site_at(const struct ms_top_sites *sites,
                                                       size_t index)
{
    return (const struct ms_top_site *)sites->sites.at + index;
}

#endif
