/* SPDX-License-Identifier: Apache-2.0 */
/* What the processes of a dry run share: a folder in memory. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_SHARED_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_SHARED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/render/commands/dry_run.h"

/* Make the folder, and remove it with all its files. path: PATH_MAX bytes. make first removes what
 * killed dry runs left there. */
bool ms_dry_shared_make(char *path);
void ms_dry_shared_remove(const char *path);

/* Removes such folders of this user once the dry run and all processes that its command started
 * have ended. */
void ms_dry_shared_sweep(void);

/* What processes asked for in vain. */
void ms_dry_shared_asked(const char *path, struct ms_dry_asked *asked);

/* The most that calls of cuDNN's double took. */
void ms_dry_shared_cudnn(const char *path, struct ms_dry_cudnn *most);

#endif
