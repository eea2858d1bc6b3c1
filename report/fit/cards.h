/* SPDX-License-Identifier: Apache-2.0 */
/* The cards for which a dry run gives results (cards.def), and whether a recorded run fits
 * one. */
#ifndef MEMSHIM_REPORT_FIT_CARDS_H
#define MEMSHIM_REPORT_FIT_CARDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/replay/recording.h"

enum ms_card_known { MS_CARD_MEASURED, MS_CARD_DOCUMENTED, MS_CARD_GUESSED, MS_CARD_GIVEN };

#define MS_CARD_NAME_BYTES 48

struct ms_card {
    char id[MS_CARD_NAME_BYTES], name[MS_CARD_NAME_BYTES];
    uint64_t total_bytes, context_bytes, bus_bytes_per_s;
    enum ms_card_known total_known, context_known, bus_known;
    unsigned major, minor, processors;
    const char *context_cuda; /* the version of CUDA of that context; empty: none in particular */
    const char *source;
};

size_t ms_card_count(void);
const struct ms_card *ms_card_at(size_t index);
const struct ms_card *ms_card_find(const char *id); /* upper or lower case; null: no such card */

/* NCCL's memory between several cards of one kind in one machine (nccl.def). */
struct ms_card_nccl {
    const char *card;
    unsigned channels, nvls_channels, peer_channels;
    bool on_host; /* the cards cannot reach each other */
    enum ms_card_known known;
    const char *source;
};
/* The first row's if the card is in none: MS_CARD_GUESSED. */
struct ms_card_nccl ms_card_nccl(const struct ms_card *card);

/* "measured", "documented", "guessed", "as given" */
const char *ms_card_known_name(enum ms_card_known known);

/* ---- whether a run fits ---- */

enum ms_card_ground { MS_GROUND_TORCH, MS_GROUND_EXPANDABLE, MS_GROUND_MEMSHIM, MS_GROUND_COUNT };

/* The needs of a run, each way, with enough of everything. */
struct ms_card_needs {
    uint64_t charged_bytes[MS_GROUND_COUNT]; /* at its highest, contexts included */
    uint64_t context_bytes;                  /* the part of it for contexts, as in the run */
};

struct ms_card_fit {
    bool known; /* false: no host memory for the replays */
    bool fits[MS_GROUND_COUNT];
    /* It fits without some of its optional tensors: where convolutions take slower algorithms. Not
     * under memshim, which would rather spill. */
    bool slower[MS_GROUND_COUNT];
    /* Estimated: the bytes that memshim would have on the host at the peak, if the run does not
     * fit. */
    uint64_t spilled_bytes;
    /* Else the smallest MEMSHIM_FRACTION with which memshim has room for all that it takes with
     * enough of everything, in hundredths, rounded up: 1 to 100. */
    unsigned fraction_percent;
};

/* How long a step takes at least to use so much memory that is on the host: it crosses the card's
 * bus once each way. memshim does not move down and up at the same time. */
uint64_t ms_card_spill_ns(const struct ms_card *card, uint64_t bytes);

/* False: no host memory. */
bool ms_card_needs(const struct ms_recording *recording, uint64_t context_bytes,
                   struct ms_card_needs *needs);

/* Replays the run with that much memory, unless `needs` shows already that it fits. */
void ms_card_fit(const struct ms_recording *recording, const struct ms_card_needs *needs,
                 const struct ms_card *card, struct ms_card_fit *fit);

#endif
