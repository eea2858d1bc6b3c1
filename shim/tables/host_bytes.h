/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory the host has left for this process. */
#ifndef MEMSHIM_SHIM_TABLES_HOST_BYTES_H
#define MEMSHIM_SHIM_TABLES_HOST_BYTES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "shim/tables/options.h"

/* What can be had without swapping: the kernel's MemAvailable, or less if a control group (v1 or
 * v2) leaves less. `root` is put before the paths of /proc and /sys ("" except in tests). 0 if
 * nothing could be read. */
uint64_t ms_host_available_bytes(const char *root);

/* The same; false: nothing could be read. Keeps errno. */
bool ms_host_measure(const char *root, uint64_t *available_bytes);

/* This was measured: ms_host_take relies on it where it can measure nothing itself. Counts before
 * its first use. */
void ms_host_note(uint64_t available_bytes);

/* Calls visit with each control group (v2) of this process, its own first, then those above: the
 * open folder of its files, and its path below /sys/fs/cgroup, which begins with a dot. */
void ms_host_groups(const char *root, void (*visit)(void *ctx, int folder, const char *group),
                    void *ctx);

/* Opens a file of that folder for reading; null: it cannot be read. The caller closes it. */
FILE *ms_host_file(int folder, const char *name);

/* How much of available_bytes may be taken: a quarter, as far as 2 GiB remain. */
uint64_t ms_host_share_bytes(uint64_t available_bytes);

/* To be asked before so much of the host's memory is pinned. False if less than 2 GiB would remain
 * available. What other programs take is measured again after every 256 MiB; where nothing can be
 * read any more, the last measurement holds, less what was taken since. Any thread. */
bool ms_host_take(uint64_t bytes);

/* The most that a process may spill into host memory: MEMSHIM_SPILL_LIMIT, or its part of that
 * share if several ranks run on this node; never so much that less than 2 GiB remain. 0 if nothing
 * may be spilled. `environment` gives the ranks. */
uint64_t ms_host_spill_bytes(const struct ms_options *options, char *const *environment,
                             uint64_t available_bytes);

#endif
