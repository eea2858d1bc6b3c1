/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites as a trace has them: the parts of each, and its memory. Read from a trace that may be
 * damaged: every id is checked, a missing definition counts as unknown, and cycles of nodes are
 * cut. */
#ifndef MEMSHIM_REPORT_TRACE_SITES_H
#define MEMSHIM_REPORT_TRACE_SITES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/trace/definitions.h"

/* A definition with its strings, all in the table's memory. */
struct ms_module_read {
    struct ms_module_definition is;
    const char *path; /* ended by a zero byte */
};

struct ms_code_read {
    struct ms_code_definition is;
    const char *file, *function; /* each ended by a zero byte; bytes as they were */
    const uint8_t *table;
};

struct ms_tag_read {
    struct ms_tag_definition is;
    const char *name; /* ended by a zero byte */
};

typedef struct ms_definitions ms_definitions_t;

/* Null: the host has no memory. Definitions are added one by one; a damaged one, or the second of
 * one id, is counted and left out. */
ms_definitions_t *ms_definitions_new(void);
void ms_definitions_delete(ms_definitions_t *definitions);
void ms_definitions_add(ms_definitions_t *definitions, uint32_t kind, const void *payload,
                        size_t bytes);

/* By id; null: unknown. */
const struct ms_module_read *ms_definitions_module(const ms_definitions_t *definitions,
                                                   uint32_t id);
const struct ms_native_definition *ms_definitions_native(const ms_definitions_t *definitions,
                                                         uint32_t id);
const struct ms_code_read *ms_definitions_code(const ms_definitions_t *definitions, uint32_t id);
const struct ms_python_definition *ms_definitions_python(const ms_definitions_t *definitions,
                                                         uint32_t id);
const struct ms_tag_read *ms_definitions_tag(const ms_definitions_t *definitions, uint32_t id);
const struct ms_site_definition *ms_definitions_site(const ms_definitions_t *definitions,
                                                     uint32_t id);

/* Whether two sites have the same Python stack or, without one, are the same. */
bool ms_definitions_same_python(const ms_definitions_t *definitions, uint32_t site, uint32_t other);

uint32_t ms_definitions_site_count(const ms_definitions_t *definitions);     /* ids are 1 to it */
uint64_t ms_definitions_sampling_bytes(const ms_definitions_t *definitions); /* 0: not sampled */
uint64_t ms_definitions_damaged(const ms_definitions_t *definitions);

/* The sums of one site on one device: blocks (without arenas) and tensors. Memory that the driver
 * served (forwarded) and pinned host memory are separate, and not live bytes. Over all sites,
 * including 0 for memory without one, live_bytes and at_peak_bytes add up to the device's own. With
 * sampling these are sums of the sampled allocations, and the estimates stand for all of the
 * site. */
struct ms_site_sums {
    uint64_t allocations, frees; /* including forwarded ones */
    uint64_t bytes;              /* all that it ever asked for, likewise */
    uint64_t live_bytes;         /* at the end */
    uint64_t peak_bytes;         /* the most that was live at once */
    uint64_t at_peak_bytes;      /* live when the device's live bytes peaked */
    uint64_t at_peak_count;      /* blocks and tensors, then */
    uint64_t forwarded_bytes; /* served by the driver and charged, beside live bytes; at the end */
    uint64_t forwarded_at_peak_bytes;
    uint64_t pinned_bytes, pinned_peak_bytes;
    uint64_t spilled_bytes, promoted_bytes; /* of its memory, moved to host memory, and back */
    uint64_t spilled_blocks;                /* its blocks that moved there, at least in part */
    uint64_t lifetime_ns;                   /* summed over all that were freed */
    uint64_t first_ns, last_ns;             /* of its first and last allocation */
    uint64_t estimated_at_peak_bytes;       /* with sampling */
    uint64_t estimated_at_peak_variance;    /* the square of the standard error, in 2^-32 of the
                                               square of the sampling's mean */
};

#endif
