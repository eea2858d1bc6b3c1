/* SPDX-License-Identifier: Apache-2.0 */
/* memshim doctor's output: one finding a line. */
#ifndef MEMSHIM_SHIM_CLI_DOCTOR_FINDINGS_H
#define MEMSHIM_SHIM_CLI_DOCTOR_FINDINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/cli/doctor/conflicts.h"
#include "shim/cli/doctor/device.h"
#include "shim/cli/doctor/host.h"
#include "shim/cli/doctor/remembered.h"
#include "shim/tables/options.h"

enum ms_doctor_level { MS_DOCTOR_OK, MS_DOCTOR_LIMITED, MS_DOCTOR_MISSING };
extern const char *const ms_doctor_level_names[];

struct ms_doctor_finding {
    const char *topic;
    int device; /* ordinal; -1: not about a device */
    enum ms_doctor_level level;
    char says[1536];    /* one sentence, without its full stop */
    const char *advice; /* what to do about it; null: nothing */
};

#define MS_DOCTOR_FINDINGS_MAX (16 + 11 * MS_DEVICES_MAX + MS_DOCTOR_KEPT_MAX + MS_CONFLICTS_MAX)

struct ms_doctor_findings {
    size_t count;
    struct ms_doctor_finding list[MS_DOCTOR_FINDINGS_MAX];
};

/* All facts from which the findings are made. */
struct ms_doctor_report {
    const struct ms_doctor_facts *facts;
    const struct ms_options *options; /* from the present environment */
    char *const *environment;
    const char *interpreter; /* as the user named it */
    struct ms_doctor_python python;
    uint64_t host_available_bytes; /* 0: unknown */
    uint64_t spill_limit_bytes;
    bool libunwind, libdw;
    struct ms_doctor_remembered remembered;
};

/* Whether memshim could serve a program here. */
bool ms_doctor_serves(const struct ms_doctor_facts *facts);

void ms_doctor_find(const struct ms_doctor_report *report, struct ms_doctor_findings *out);

#endif
