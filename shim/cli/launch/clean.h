/* SPDX-License-Identifier: Apache-2.0 */
/* Frees disk space: an output folder keeps the latest runs. */
#ifndef MEMSHIM_SHIM_CLI_LAUNCH_CLEAN_H
#define MEMSHIM_SHIM_CLI_LAUNCH_CLEAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "shim/tables/options.h"

struct ms_clean_run {
    char path[4096];
    uint64_t bytes; /* on disk */
    time_t changed; /* when the last of its traces changed */
    bool stays;     /* the latest run, or one whose processes may still run */
};

/* Removes runs of an output folder, the oldest first, until none is older than `keep->age_ns` and
 * all together have at most `keep->bytes`. The latest run stays, and so does each run in which a
 * process may still run: it holds its trace locked, or never closed it and wrote to it within the
 * last hour (a lock on another host may be invisible). Removes only files that memshim writes; a
 * run's folder stays if it has anything else. Calls `removed` with each run, the oldest first; with
 * `dry`, removes nothing. False, and a sentence in `why`: the folder cannot be read, or something
 * in it cannot be removed; the rest is removed. */
bool ms_clean(const char *output, const struct ms_keep *keep, bool dry,
              void (*removed)(void *ctx, const struct ms_clean_run *run), void *ctx, char *why,
              size_t why_bytes);

#endif
