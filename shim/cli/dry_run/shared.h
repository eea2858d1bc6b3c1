/* SPDX-License-Identifier: Apache-2.0 */
/* What the processes of a dry run share: a folder in memory. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_SHARED_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_SHARED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/render/commands/dry_run.h"

/* A folder in memory, and its end with all files in it. path: PATH_MAX bytes. What a dry run that
 * was killed left there goes first. */
bool ms_dry_shared_make(char *path);
void ms_dry_shared_remove(const char *path);

/* Removes such folders of this user whose dry run has ended, and all that its command has begun. */
void ms_dry_shared_sweep(void);

/* What a process asked for in vain: the highest device, -1: none; a host, empty: none. */
void ms_dry_shared_asked(const char *path, int *device, char *host, size_t host_bytes);

/* The most that calls of cuDNN's double took. */
void ms_dry_shared_cudnn(const char *path, struct ms_dry_cudnn *most);

#endif
