/* SPDX-License-Identifier: Apache-2.0 */
/* What a trace says of call sites: what each is made of, and what it holds.
 *
 * Read from a trace that may be damaged: every id is checked, a definition that is missing reads as
 * unknown, and a tree that is not one is cut. */
#ifndef MEMSHIM_REPORT_TRACE_SITES_H
#define MEMSHIM_REPORT_TRACE_SITES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/trace/definitions.h"

/* A definition and the strings behind it, all within the table's memory. */
struct ms_module_read {
    struct ms_module_definition is;
    const char *path; /* ended by a zero byte */
};

struct ms_code_read {
    struct ms_code_definition is;
    const char *file, *function; /* ended by a zero byte each; bytes as they were */
    const uint8_t *table;
};

struct ms_tag_read {
    struct ms_tag_definition is;
    const char *name; /* ended by a zero byte */
};

typedef struct ms_definitions ms_definitions_t;

/* Null where there is no host memory. Definitions are added one by one; one that is damaged or
 * defined twice is counted and left out. */
ms_definitions_t *ms_definitions_new(void);
void ms_definitions_delete(ms_definitions_t *definitions);
void ms_definitions_add(ms_definitions_t *definitions, uint32_t kind, const void *payload,
                        size_t bytes);

/* By id; null where it is not known. */
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
uint32_t ms_definitions_site_count(const ms_definitions_t *definitions);     /* ids are 1 to it */
uint64_t ms_definitions_sampling_bytes(const ms_definitions_t *definitions); /* 0: not sampled */
uint64_t ms_definitions_damaged(const ms_definitions_t *definitions);

/* What one site did on one device: blocks (without arenas), tensors, and apart from them what the
 * driver served (forwarded) and pinned host memory, which are not live bytes. Over all sites, 0 for
 * what has none among them, live_bytes and at_peak_bytes add up to the device's own. With sampling
 * these are of what was sampled, and the estimates of all that the site stands for. */
struct ms_site_sums {
    uint64_t allocations, frees; /* forwarded ones among them */
    uint64_t bytes;              /* all that it ever asked for; likewise */
    uint64_t live_bytes;         /* at the end */
    uint64_t peak_bytes;         /* the most that was live at once */
    uint64_t at_peak_bytes;      /* live when the device's live bytes peaked */
    uint64_t at_peak_count;      /* blocks and tensors, at that moment */
    uint64_t forwarded_bytes; /* charged beside live bytes for what the driver served; at the end */
    uint64_t forwarded_at_peak_bytes;
    uint64_t pinned_bytes, pinned_peak_bytes;
    uint64_t spilled_bytes, promoted_bytes; /* of its, moved to host memory, and back */
    uint64_t spilled_blocks;                /* how many of its moved there, or a part of them */
    uint64_t lifetime_ns;                   /* of all that were freed, summed */
    uint64_t first_ns, last_ns;             /* of its allocations */
    double estimated_at_peak_bytes;         /* with sampling */
    double estimated_at_peak_variance;      /* the standard error's square */
};

#endif
