/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds: the purpose of memory in the program, judged by a site's stack and by the lifetimes of its
 * memory (site_lifetimes.h). The rules are one table in kinds.c; the first that fits decides, and
 * its words are the reason. */
#ifndef MEMSHIM_REPORT_MODEL_KINDS_H
#define MEMSHIM_REPORT_MODEL_KINDS_H

#include <stdbool.h>
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

/* Whether a model needs it for any batch. */
static inline bool ms_kind_is_of_model(enum ms_kind kind)
{
    return kind == MS_KIND_PARAMETERS || kind == MS_KIND_GRADIENTS || kind == MS_KIND_OPTIMIZER ||
           kind == MS_KIND_COMMUNICATION;
}

/* The kinds of one site's memory. If its blocks have several, `kind` is the largest at the peak, or
 * over all if none was live then, and shares has each. */
struct ms_site_kinds {
    uint8_t kind;
    uint8_t second;     /* the largest other one over all; equal to kind if there is none */
    const char *reason; /* of `kind`: a clause */
    uint64_t bytes[MS_KIND_COUNT], at_peak_bytes[MS_KIND_COUNT];
};

/* The readable name: "optimizer state". */
const char *ms_kind_name(enum ms_kind kind);

/* What the name means, as docs/report.md has it; null: the name says it. */
const char *ms_kind_meaning(enum ms_kind kind);

/* The evidence about sites: of one run that was read whole. */
struct ms_kinds_ground {
    const ms_definitions_t *definitions;
    const ms_landmarks_t *landmarks;
    const ms_site_table_t *table;
    ms_stacks_t *stacks; /* null: no names are known, so workspaces and communication cannot be
                            recognized */
    const uint64_t *made_state_bytes; /* by device: ms_kinds_made_state */
};

/* Bytes that optimizers' steps allocated on the device and kept. */
uint64_t ms_kinds_made_state(const ms_landmarks_t *landmarks, const ms_site_table_t *table,
                             uint8_t device);

/* The kind of the site's bytes of each lifetime, by the same rules. */
void ms_kinds_by_lifetime(const struct ms_kinds_ground *ground, uint8_t device, uint32_t site,
                          uint8_t kinds[MS_LIFETIME_COUNT]);

/* Whether it is the work space of a convolution of PyTorch's. stacks: null: it is not known to be
 * one. */
bool ms_kinds_is_convolutions(ms_stacks_t *stacks, uint32_t site);

void ms_kinds_judge(const struct ms_kinds_ground *ground, uint8_t device, uint32_t site,
                    struct ms_site_kinds *kinds);

#endif
