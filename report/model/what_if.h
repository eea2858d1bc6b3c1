/* SPDX-License-Identifier: Apache-2.0 */
/* What-if: the memory that would have been enough. Replays the run's own trace, up to the
 * out-of-memory and its request, through the pool on the dry device (replay.h). */
#ifndef MEMSHIM_REPORT_MODEL_WHAT_IF_H
#define MEMSHIM_REPORT_MODEL_WHAT_IF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ms_model;

/* The most operations of all replays together: about a second's. */
#define MS_WHAT_IF_OPERATIONS UINT64_C(1000000)

/* A search for the least cap, in steps of a hundredth of the device. */
struct ms_what_if_cap {
    uint64_t cap_bytes;       /* completes; 0: no cap that was tried does */
    uint64_t too_small_bytes; /* the largest cap below it that was tried and does not complete, the
                                 run's own included; 0: none */
    uint64_t host_bytes;      /* most live memory on the host at cap_bytes */
};

/* The least memory, beside the driver's own, with which a run completes with nothing on the host.
 * Divided by the peak of live bytes it is the overhead ratio. */
struct ms_overhead {
    const char *why;        /* a clause: why it is unknown; null: nobody asked yet */
    int device;             /* the main one */
    uint64_t min_cap_bytes; /* 0: unknown */
    uint64_t peak_live_bytes;
    uint64_t part_events; /* only the first ones were replayed; 0: all were */
    unsigned replays;
};

struct ms_what_if {
    bool tried;
    const char *why;        /* a clause: why not; null: nobody asked yet */
    size_t oom;             /* index of the out-of-memory */
    uint64_t device_bytes;  /* of the run's device */
    uint64_t request_bytes; /* the size of the request, which has to succeed */
    uint64_t room_bytes;    /* the room that the run had: its cap, or the part of it that others and
                               the driver left */
    struct ms_what_if_cap plain, spilled; /* plain: nothing on the host; spilled: live memory may
                                             move there */
    bool own_cap_spilled; /* it completes with that room, if more live memory may move than the run
                             allowed */
    uint64_t own_cap_host_bytes; /* and needs so much on the host */
    unsigned replays;
    struct ms_overhead overhead; /* for a run that no out-of-memory ended */
};

/* To be called before ms_model_survey: makes the survey record what ms_what_if_try will replay, so
 * that the trace is not read once more. Takes the same most_operations. */
void ms_what_if_expect(struct ms_model *model, uint64_t most_operations);

/* Computes model->what_if for the out-of-memory that ended the run; without one, the run's
 * overhead. `why` says why a result is missing. Reads the trace if no survey has made its
 * recording. most_operations: a bound of its time. */
void ms_what_if_try(struct ms_model *model, uint64_t most_operations);

/* The most that PyTorch held reserved, in its segments or pages. If that is unknown: when the
 * device's live bytes peaked, or at the out-of-memory that ended the run. It is an upper bound of
 * PyTorch's need alone, because it includes chunks taken out of holes. 0: unknown. */
uint64_t ms_what_if_torch_bytes(const struct ms_model *model, int device);

/* The same, plus live memory then that is not PyTorch's: the program's own blocks. */
uint64_t ms_what_if_alone_bytes(const struct ms_model *model, int device);

#endif
