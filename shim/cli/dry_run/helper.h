/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that a dry run asks before its command begins. */
#ifndef MEMSHIM_SHIM_CLI_DRY_RUN_HELPER_H
#define MEMSHIM_SHIM_CLI_DRY_RUN_HELPER_H

#include "allocator/base/buffer.h"

/* Runs argv[0], a path, without anything preloaded, and appends what it writes to stdout, and a
 * zero byte. -1: it could not be run; otherwise its exit status.
 *
 * SIGINT, SIGTERM, SIGHUP and SIGQUIT end the program, and then, after a line on stderr, this
 * process by the same signal, unless it was started with that ignored. The program ends, too, when
 * this process is killed. */
int ms_dry_helper_read(char *const *argv, struct ms_buffer *out);

#endif
