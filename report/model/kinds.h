/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds: what memory is to the program that asked for it, judged by a site's stack and by what
 * became of its memory (site_lifetimes.h). The rules are one table in kinds.c; the first that fits
 * decides, and its words are the reason. */
#ifndef MEMSHIM_REPORT_MODEL_KINDS_H
#define MEMSHIM_REPORT_MODEL_KINDS_H

#include <stdint.h>

#include "report/fold/landmarks.h"
#include "report/fold/site_sums.h"
#include "report/symbols/stacks.h"

enum ms_kind {
    MS_KIND_PARAMETERS,
    MS_KIND_GRADIENTS,
    MS_KIND_OPTIMIZER,
    MS_KIND_ACTIVATIONS,
    MS_KIND_INPUTS,
    MS_KIND_TEMPORARY,
    MS_KIND_WORKSPACE,
    MS_KIND_COMMUNICATION,
    MS_KIND_GRAPHS,
    MS_KIND_PERSISTENT,
    MS_KIND_UNKNOWN,
    MS_KIND_COUNT
};

/* What one site's memory is. Where its blocks became different things, `kind` is the larger at the
 * peak, or over all where none was live then, and shares tell each. */
struct ms_site_kinds {
    uint8_t kind;
    uint8_t second;     /* the largest other one over all; equal to kind where there is none */
    const char *reason; /* of `kind`: a clause */
    uint64_t bytes[MS_KIND_COUNT], at_peak_bytes[MS_KIND_COUNT];
};

/* "optimizer state", as people read it. */
const char *ms_kind_name(enum ms_kind kind);

/* What sites are judged by: of one run, once it is read. */
struct ms_kinds_ground {
    const ms_definitions_t *definitions;
    const ms_landmarks_t *landmarks;
    const ms_site_table_t *table;
    ms_stacks_t *stacks; /* null where no names are known, which leaves workspaces and communication
                            unseen */
    const uint64_t *made_state_bytes; /* by device: ms_kinds_made_state */
};

/* Bytes that optimizers' steps made on the device for themselves and kept. */
uint64_t ms_kinds_made_state(const ms_landmarks_t *landmarks, const ms_site_table_t *table,
                             uint8_t device);

/* What the site's bytes of each lifetime are, by the same rules. */
void ms_kinds_by_lifetime(const struct ms_kinds_ground *ground, uint8_t device, uint32_t site,
                          uint8_t kinds[MS_LIFETIME_COUNT]);

void ms_kinds_judge(const struct ms_kinds_ground *ground, uint8_t device, uint32_t site,
                    struct ms_site_kinds *kinds);

#endif
