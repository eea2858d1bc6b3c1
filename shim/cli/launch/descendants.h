/* SPDX-License-Identifier: Apache-2.0 */
/* The processes that one has started, and those that they have started in turn. */
#ifndef MEMSHIM_SHIM_CLI_LAUNCH_DESCENDANTS_H
#define MEMSHIM_SHIM_CLI_LAUNCH_DESCENDANTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "allocator/base/buffer.h"

struct ms_descendant {
    pid_t pid, group;
    uint64_t private_bytes; /* its own pages, not those of files or of shared memory */
};

/* Appends those of `root`, which is not among them, to an empty buffer, which the caller frees;
 * none if /proc cannot be read. A process whose parent has ended is among them only if the root
 * adopts such processes (PR_SET_CHILD_SUBREAPER). */
void ms_descendants_find(pid_t root, struct ms_buffer *found);

static inline size_t ms_descendants_count(const struct ms_buffer *found)
{
    return found->bytes / sizeof(struct ms_descendant);
}

static inline const struct ms_descendant *ms_descendants_at(const struct ms_buffer *found,
                                                            size_t index)
{
    return (const struct ms_descendant *)(const void *)found->at + index;
}

#endif
