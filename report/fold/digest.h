/* SPDX-License-Identifier: Apache-2.0 */
/* The digest of a trace: the sums over the events whose windows made room for newer ones. A bounded
 * trace has one. A reader loads it and goes on with the records that follow. So sums by call site,
 * kinds, steps, tags, and the holders of live memory at the peak and at each out-of-memory are
 * those of the whole run, exactly as if every record were there. Results that need the records
 * themselves (the order of single events, maps of addresses) start at the oldest window.
 *
 * The digest is the reader's own state, stored. Writer and reader share the code that folds events,
 * so they cannot differ. It is exact; any summary would have to guess which allocations the kinds
 * and steps will need at the end. Two things differ from reading all records at once: results on
 * single blocks whose end lies in the digest (the survey's second pass), and landmarks
 * (landmarks.h) of sites that were defined only later.
 *
 * The traced process makes it (fold.h), a window at a time, before that is recycled, without the
 * lock that events take, in pages of its own. */
#ifndef MEMSHIM_REPORT_FOLD_DIGEST_H
#define MEMSHIM_REPORT_FOLD_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/buffer.h"
#include "report/fold/site_sums.h"
#include "report/fold/steps.h"
#include "report/trace/recorded.h"

#define MS_DIGEST_OOMS     64u /* the first out-of-memories, which have a set of moments */
#define MS_DIGEST_INSTANTS 64u /* sets of moments in between, spread over the folded events */

/* The holders of one device's live bytes at a moment. */
struct ms_digest_moment {
    uint64_t time_ns; /* the time of the event before it */
    uint64_t event;   /* number of events recorded before it */
    uint32_t device;
    uint32_t oom;        /* 1: an out-of-memory (its log entry has the same `event`) */
    size_t first, count; /* of its holdings */
};

struct ms_digest_holding {
    uint64_t site, bytes;
};

/* In the order of events. */
struct ms_digest_moments {
    struct ms_buffer heads;    /* struct ms_digest_moment */
    struct ms_buffer holdings; /* struct ms_digest_holding */
};

/* The parts of the state, which belong to others. */
struct ms_digest {
    uint64_t end_event; /* it covers the events before this number, */
    uint64_t end_ns;    /* the last of which was recorded at this time */
    ms_site_table_t *sites;
    ms_steps_t *steps;
    struct ms_model_steps *steps_recorded;
    struct ms_model_tags *tags;
    struct ms_buffer *moves;
    struct ms_digest_moments *moments;
};

/* Adds one event, in the order of the trace. number: how many came before it. */
void ms_digest_take(const struct ms_digest *digest, const struct ms_event *event, uint64_t time_ns,
                    uint64_t number);

void ms_digest_store(const struct ms_digest *digest, struct ms_buffer *out);

/* All parts must be new. False: `from` is no digest, and the parts are unusable. */
bool ms_digest_load(struct ms_digest *digest, const void *from, size_t bytes);

/* Adds a moment: the bytes that each call site holds now. */
void ms_digest_moments_add(struct ms_digest_moments *moments, const ms_site_table_t *sites,
                           const struct ms_digest_moment *head);

/* Removes every second moment that belongs to no out-of-memory. */
void ms_digest_moments_thin(struct ms_digest_moments *moments);

void ms_digest_moments_free(struct ms_digest_moments *moments);

/* The beginning of the payload of each extent of kind DIGEST. Two digests have their own extents,
 * used in turn: one stays until the next one is whole. */
struct ms_digest_part {
    uint64_t generation; /* the higher the newer; from 1 */
    uint32_t part, parts;
    uint64_t total_bytes; /* of all parts together */
    uint64_t checksum;    /* of all these bytes */
};

#endif
