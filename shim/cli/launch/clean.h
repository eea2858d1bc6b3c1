/* SPDX-License-Identifier: Apache-2.0 */
/* Room on disk: an output folder keeps the latest runs. */
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
    time_t changed; /* the last of its traces */
    bool stays;     /* the latest, or one whose processes may still run */
};

/* Removes runs of an output folder, the oldest first, until none that is left is older than
 * `keep->age_ns`, and all together have at most `keep->bytes`. The latest run stays, and each in
 * which a process may still run: one that holds its trace, or one that never closed it and wrote
 * into it within the hour (on another host, a lock may not be seen). Of a run, only files that
 * memshim writes are removed; its folder stays where there is anything else in it. `removed` is
 * called with each, the oldest first; with `dry`, nothing is removed. False, and a sentence in
 * `why`: the folder cannot be read, or something in it not be removed; the others are. */
bool ms_clean(const char *output, const struct ms_keep *keep, bool dry,
              void (*removed)(void *ctx, const struct ms_clean_run *run), void *ctx, char *why,
              size_t why_bytes);

#endif
