/* SPDX-License-Identifier: Apache-2.0 */
/* The rule of the verdict, without its words. All of it is pure, and in bytes. */
#ifndef MEMSHIM_REPORT_TRACE_VERDICT_RULE_H
#define MEMSHIM_REPORT_TRACE_VERDICT_RULE_H

#include <stdbool.h>
#include <stdint.h>

#include "report/trace/verdict.h"

/* The terms of the rule (docs/report.md, "The rule"). */
struct ms_verdict_terms {
    uint64_t fixed_bytes;        /* F: charged, and no placement makes it less */
    uint64_t live_bytes;         /* L: live on the device; in a framework's segments, its tensors */
    uint64_t pending_bytes;      /* P: freed, and queued work may still use it */
    uint64_t request_bytes;      /* R: the tensor, or the block if there is none */
    uint64_t hole_bytes;         /* H: free in chunks, and could not serve */
    uint64_t spillable_bytes;    /* S: live, and the host would still have taken it */
    uint64_t movable_bytes;      /* S without MEMSHIM_SPILL_LIMIT; at least S */
    uint64_t piece_bytes;        /* the piece that a framework asked for to place the request in; at
                                    least R */
    uint64_t free_bytes;         /* uncharged below all of the following limits */
    uint64_t device_bytes;       /* the whole device */
    uint64_t others_leave_bytes; /* the part of it that other processes leave */
    uint64_t driver_bytes;       /* the part that the driver's own limit leaves; UINT64_MAX: there
                                    is none */
    uint64_t cap_bytes;          /* at most device_bytes */
    bool torch_refused;          /* PyTorch gave up by itself, although the bytes were there */
    uint64_t driver_error;       /* likewise, but after this error of the driver's; 0: none */
    bool of_host;                /* the request was for page-locked host memory */
};

enum ms_verdict ms_verdict_rule(const struct ms_verdict_terms *terms);

/* The terms of a state of any version. */
struct ms_verdict_terms ms_verdict_terms(const struct ms_oom_state *state);

/* F + L + R - S. */
uint64_t ms_verdict_need_bytes(const struct ms_verdict_terms *terms);

/* The tightest of device, cap, the driver's limit, and the part that others leave; and the verdict
 * that names it. */
uint64_t ms_verdict_room_bytes(const struct ms_verdict_terms *terms);
enum ms_verdict ms_verdict_nearest(const struct ms_verdict_terms *terms);

/* Whether less than a hundredth of that room is left beside the need. */
bool ms_verdict_nothing_left(const struct ms_verdict_terms *terms);

/* The bytes that the piece lacks beside free bytes. */
uint64_t ms_verdict_lacking_bytes(const struct ms_verdict_terms *terms);

#endif
