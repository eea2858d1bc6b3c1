/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that probes have left in the user's cache folder (shim/tables/remembered.h), compared
 * with what memshim doctor has just found out. */
#ifndef MEMSHIM_SHIM_CLI_DOCTOR_REMEMBERED_H
#define MEMSHIM_SHIM_CLI_DOCTOR_REMEMBERED_H

#include <stdbool.h>
#include <stddef.h>

#include "shim/cli/doctor/device.h"
#include "shim/tables/remembered.h"

#define MS_DOCTOR_KEPT_MAX 32

/* An answer that says no, contradicts this trial, or cannot be used. */
struct ms_doctor_kept {
    char name[MS_REMEMBERED_KEY_BYTES];
    int device;          /* ordinal; -1: not about a device here */
    int code;            /* a code of MS_PROBE_CODES */
    const char *trouble; /* why it cannot be used; null: it can */
    char since[24];      /* UTC */
    bool removed;
};

struct ms_doctor_remembered {
    struct ms_remembered folder; /* closed */
    bool forget;                 /* the user asked to forget all answers */
    unsigned forgotten;          /* how many answers were removed for that */
    size_t count;
    struct ms_doctor_kept list[MS_DOCTOR_KEPT_MAX];
};

/* Reads the answers, and repairs: removes those that cannot be used, and every answer about a
 * device of `facts` that this trial contradicts. forget: removes all. */
void ms_doctor_read_remembered(const struct ms_doctor_facts *facts, char *const *environment,
                               bool forget, struct ms_doctor_remembered *out);

#endif
