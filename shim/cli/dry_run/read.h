/* SPDX-License-Identifier: Apache-2.0 */
/* The traces of a dry run: its progress, and its results. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_READ_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "report/render/commands/dry_run.h"

struct ms_dry_progress {
    unsigned processes;       /* that use a device */
    uint64_t least_steps;     /* optimizer steps of the process with the fewest */
    bool all_stepped_twice;   /* in every process, each optimizer that recurs */
    bool all_have_state;      /* in every process an optimizer made its state */
    bool validates;           /* a validation has ended in one of them */
    bool trains;              /* a backward pass was seen; if not, steps are turns of a loop */
    uint64_t peak_live_bytes; /* of the process with most */
};

/* Reads all traces in the output folder, which belongs to this run alone. */
void ms_dry_progress(const char *output, struct ms_dry_progress *progress);

/* Adds a rank for every trace there. */
void ms_dry_read(const char *output, struct ms_dry_answer *answer);

/* Puts the answer's cards where the pages of the run find them (MS_PAGE_CARDS). */
void ms_dry_save_cards(const char *output, const struct ms_dry_answer *answer);

void ms_dry_answer_free(struct ms_dry_answer *answer);

#endif
