/* SPDX-License-Identifier: Apache-2.0 */
/* The digest of a trace: what the events came to whose windows made room for newer ones. A bounded
 * trace has one; a reader takes it up and goes on with the records that follow it, so that sums by
 * call site, kinds, steps, tags and who was live at the peak and at each out-of-memory are those of
 * the whole run, exactly as if every record were there. What needs records themselves (the order of
 * single events, maps of addresses) is known from the oldest window on.
 *
 * Decided so, and not otherwise: the digest is the reader's own state, put down. One piece of code
 * folds events, here and there, so there is no second truth; and it is exact, where a summary of
 * any kind would have to guess which allocations the kinds and steps will ask for at the end.
 * Two things differ from reading all records at once: what was said of single blocks whose end lies
 * in the digest (the survey's second pass), and landmarks (landmarks.h) of sites that came to be
 * known only later.
 *
 * Made by the traced process (fold.h), a window at a time, when it is about to be recycled, without
 * the lock that events take, in pages of its own. */
#ifndef MEMSHIM_REPORT_FOLD_DIGEST_H
#define MEMSHIM_REPORT_FOLD_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "report/fold/site_sums.h"
#include "report/fold/steps.h"
#include "report/trace/recorded.h"

#define MS_DIGEST_OOMS     64u /* out-of-memories with a set, the first so many */
#define MS_DIGEST_INSTANTS 64u /* sets in between, spread over what was folded */

/* Who held the live bytes of one device at a moment. */
struct ms_digest_moment {
    uint64_t time_ns; /* of the event before it */
    uint64_t event;   /* events recorded before */
    uint32_t device;
    uint32_t oom;        /* 1: an out-of-memory (its log entry has the same `event`) */
    size_t first, count; /* of its holdings */
};

struct ms_digest_holding {
    uint64_t site, bytes;
};

/* By event. */
struct ms_digest_moments {
    struct ms_buffer heads;    /* struct ms_digest_moment */
    struct ms_buffer holdings; /* struct ms_digest_holding */
};

/* The parts of the state, which others own. */
struct ms_digest {
    uint64_t end_event; /* it is of the events before that number, */
    uint64_t end_ns;    /* the last one recorded at that time */
    ms_site_table_t *sites;
    ms_steps_t *steps;
    struct ms_model_steps *steps_recorded;
    struct ms_model_tags *tags;
    struct ms_buffer *moves;
    struct ms_digest_moments *moments;
};

/* One event, in the order of the trace. */
void ms_digest_take(const struct ms_digest *digest, const struct ms_event *event, uint64_t time_ns);

void ms_digest_store(const struct ms_digest *digest, struct ms_buffer *out);

/* All parts are new. False where that is no digest: then they are good for nothing. */
bool ms_digest_load(struct ms_digest *digest, const void *from, size_t bytes);

/* Adds a moment: which call site holds how much now. */
void ms_digest_moments_add(struct ms_digest_moments *moments, const ms_site_table_t *sites,
                           const struct ms_digest_moment *head);

/* Removes every second moment that is no out-of-memory. */
void ms_digest_moments_thin(struct ms_digest_moments *moments);

void ms_digest_moments_free(struct ms_digest_moments *moments);

/* Where its bytes lie in the file: each extent of kind DIGEST begins its payload so. Two digests
 * have their own extents, used in turn: one stands until the next one is whole. */
struct ms_digest_part {
    uint64_t generation; /* the higher is the newer; from 1 */
    uint32_t part, parts;
    uint64_t total_bytes; /* of all parts together */
    uint64_t checksum;    /* of these */
};

#endif
