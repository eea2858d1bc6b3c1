/* SPDX-License-Identifier: Apache-2.0 */
/* What else is known to stand between a program and its GPU memory, and what to do about it. */
#ifndef MEMSHIM_SHIM_CLI_DOCTOR_CONFLICTS_H
#define MEMSHIM_SHIM_CLI_DOCTOR_CONFLICTS_H

#include <stddef.h>

/* Where it is looked for. */
struct ms_conflict_signs {
    char *const *environment; /* NAME=value strings, null at the end */
    const char *root;        /* stands before the paths of /etc, /proc and /tmp ("" but in tests) */
    const char *device_name; /* of the first device; "" where there is none */
};

struct ms_conflict {
    const char *name;
    const char *by; /* the sign that it was found by */
    const char *says;
    const char *advice;
};

#define MS_CONFLICTS_MAX 16

/* Those that are found; returns how many. */
size_t ms_doctor_conflicts(const struct ms_conflict_signs *signs,
                           struct ms_conflict found[MS_CONFLICTS_MAX]);

#endif
