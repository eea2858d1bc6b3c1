/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a call of memshim dry-run. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_CALL_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "report/fit/cards.h"
#include "shim/cli/dry_run/around.h"
#include "shim/cli/dry_run/batches.h"

struct ms_dry_call {
    struct ms_card card;
    const char *gpu; /* null: not given */
    bool json, allow_writes;
    bool random; /* values that no kernel computed are random */
    enum { MS_DRY_SCHEDULES_AUTO, MS_DRY_SCHEDULES_ONE, MS_DRY_SCHEDULES_BOTH } schedules;
    uint64_t devices, steps, host_bytes; /* 0: not given */
    bool validation;                     /* wait for one, too */
    struct ms_dry_around around;
    struct ms_dry_plan plan;
    bool find_batch, two_plans; /* two_plans: of a variable and of an argument, which is an error */
};

/* Reads the arguments into *call; *command: the index of the command's first word. -1 if there is a
 * command to run; otherwise the exit status, after an error message. */
int ms_dry_call_read(int argc, char **argv, struct ms_dry_call *call, int *command);

/* The processes of the command, by its launcher's own words; 1 where they do not say. */
uint64_t ms_dry_call_processes(char *const *command);

/* The devices that the command will ask for, by its launcher's own words. */
uint64_t ms_dry_call_devices(const struct ms_dry_call *call, char *const *command);

#endif
