/* SPDX-License-Identifier: Apache-2.0 */
/* What else may stand between a program and its GPU memory, and what to do about it. */
#ifndef MEMSHIM_SHIM_CLI_DOCTOR_CONFLICTS_H
#define MEMSHIM_SHIM_CLI_DOCTOR_CONFLICTS_H

#include <stddef.h>

/* Where the signs are looked for. */
struct ms_conflict_signs {
    char *const *environment; /* NAME=value strings, null at the end */
    const char *root;        /* put before the paths of /etc, /proc and /tmp ("" except in tests) */
    const char *device_name; /* of the first device; "" if there is none */
    const char *nccl;        /* the version that PyTorch finds, such as 2.30.7; "" if unknown */
};

struct ms_conflict {
    char name[48];
    const char *by; /* the sign that was found */
    const char *says;
    const char *advice;
};

#define MS_CONFLICTS_MAX 24

/* Finds conflicts; returns how many. */
size_t ms_doctor_conflicts(const struct ms_conflict_signs *signs,
                           struct ms_conflict found[MS_CONFLICTS_MAX]);

#endif
