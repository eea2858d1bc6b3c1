/* SPDX-License-Identifier: Apache-2.0 */
/* What would have been enough, found by replaying the run's own trace, up to the out-of-memory and
 * the request that it was for, through the pool on the dry device (replay.h). */
#ifndef MEMSHIM_REPORT_MODEL_WHAT_IF_H
#define MEMSHIM_REPORT_MODEL_WHAT_IF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ms_model;

/* Operations that are replayed, in all replays together: about a second's. */
#define MS_WHAT_IF_OPERATIONS UINT64_C(1000000)

/* A search for the least cap, in steps of a hundredth of the device. */
struct ms_what_if_cap {
    uint64_t cap_bytes;       /* completes; 0: nothing that was tried does */
    uint64_t too_small_bytes; /* the largest below it that was tried, the run's own among them, and
                                 does not; 0: none */
    uint64_t host_bytes;      /* most live memory on the host at cap_bytes */
};

/* The least memory beside what the driver takes with which a run completes, nothing of it on the
 * host. Over the peak of live bytes that is the overhead ratio. */
struct ms_overhead {
    const char *why;        /* a clause: why it is not known; null before anybody asked */
    int device;             /* the main one */
    uint64_t min_cap_bytes; /* 0: not known */
    uint64_t peak_live_bytes;
    uint64_t part_events; /* the first so many were replayed, and the rest were not; 0: all were */
    unsigned replays;
};

struct ms_what_if {
    bool tried;
    const char *why;        /* a clause: why not; null before anybody asked */
    size_t oom;             /* index of the out-of-memory */
    uint64_t device_bytes;  /* of the run's device */
    uint64_t request_bytes; /* that is carried past */
    uint64_t room_bytes; /* that the run had: its cap, or what others and the driver left of that */
    struct ms_what_if_cap plain, spilled; /* nothing on the host; live memory may move there */
    bool own_cap_spilled; /* with that room it completes, if more live memory may move than might */
    uint64_t own_cap_host_bytes; /* and needs so much there */
    unsigned replays;
    struct ms_overhead overhead; /* of a run that no out-of-memory ended */
};

/* Before ms_model_survey: has the survey make the recording that ms_what_if_try will replay, if it
 * will, so that the trace is not read for it once more. The same most_operations. */
void ms_what_if_expect(struct ms_model *model, uint64_t most_operations);

/* Of the out-of-memory that ended the run, or else its overhead, into model->what_if. `why` where
 * it cannot be told. Reads the trace where no survey has made its recording. most_operations: a
 * bound of its time. */
void ms_what_if_try(struct ms_model *model, uint64_t most_operations);

/* The most that PyTorch ever held reserved, in its segments or pages; where that is not known, when
 * live bytes of the device peaked, or at the out-of-memory that ended the run: an upper bound of
 * what it would have needed alone, since what was taken out of its holes is among it. 0: not known.
 */
uint64_t ms_what_if_torch_bytes(const struct ms_model *model, int device);

/* The same beside what was live then and is none of PyTorch's: the program's own blocks. */
uint64_t ms_what_if_alone_bytes(const struct ms_model *model, int device);

#endif
