/* SPDX-License-Identifier: Apache-2.0 */
/* A private writable layer over all folders. What a process and its children write is visible to
 * them alone, and vanishes when the last of them has ended. */
#ifndef MEMSHIM_SHIM_CLI_LAUNCH_OVERLAY_H
#define MEMSHIM_SHIM_CLI_LAUNCH_OVERLAY_H

#include <stddef.h>
#include <stdint.h>

/* For a process with one thread that will exec. From here on it writes into a layer in memory,
 * except in folders below /dev, /proc, /sys and /run, and below `kept`, an existing folder.
 * `scratch`: an empty folder outside these; the layer's files are mounted there, for these
 * processes. `room_bytes`: the most that they take of memory; a write that needs more fails with
 * ENOSPC. 0: half of the machine's. Needs no privilege if the kernel lets users make namespaces.
 *
 * Returns 0, or an errno and the folder at which it failed; then the process can only end. */
int ms_overlay_enter(const char *scratch, uint64_t room_bytes, const char *kept, char *where,
                     size_t where_bytes);

/* Whether a process could do that, tried in a child. The same result. */
int ms_overlay_try(const char *scratch, const char *kept, char *where, size_t where_bytes);

#endif
