/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that a command runs for itself, to read what they write. */
#ifndef MEMSHIM_SHIM_CLI_LAUNCH_HELPER_H
#define MEMSHIM_SHIM_CLI_LAUNCH_HELPER_H

#include "allocator/base/buffer.h"

/* Reads what the program writes to stdout, to the end or as far as it likes, and closes `from`. */
typedef void (*ms_helper_reader_t)(void *ctx, int from);

/* Runs argv[0], a path, without anything preloaded, until it has ended. -1: it could not be run, or
 * a signal ended it; otherwise its exit status.
 *
 * SIGINT, SIGTERM, SIGHUP and SIGQUIT end the program, and then, after the line `interrupted` on
 * stderr (null: none), this process by the same signal, unless it was started with that ignored.
 * The program ends, too, when this process is killed. */
int ms_helper_run(char *const *argv, ms_helper_reader_t reader, void *ctx, const char *interrupted);

/* Likewise; appends what the program writes, and a zero byte. -1, too: there is no memory for
 * it. */
int ms_helper_read(char *const *argv, struct ms_buffer *out, const char *interrupted);

#endif
