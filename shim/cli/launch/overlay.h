/* SPDX-License-Identifier: Apache-2.0 */
/* A private writable layer over all folders: what a process and its children write is theirs alone,
 * and gone when the last of them has ended. */
#ifndef MEMSHIM_SHIM_CLI_LAUNCH_OVERLAY_H
#define MEMSHIM_SHIM_CLI_LAUNCH_OVERLAY_H

#include <stddef.h>

/* For a process with one thread that will exec: from here on it writes into a layer in memory, but
 * for folders below /dev, /proc, /sys and /run, and below `kept`, a folder that is there.
 * `scratch`: an empty folder that is neither. Needs no privilege where the kernel lets users have
 * namespaces of their own.
 *
 * 0, or an errno and the folder at which it failed; then the process is good for nothing but to
 * end. */
int ms_overlay_enter(const char *scratch, const char *kept, char *where, size_t where_bytes);

/* Whether a process could: tried in one of its own. The same result. */
int ms_overlay_try(const char *scratch, const char *kept, char *where, size_t where_bytes);

#endif
