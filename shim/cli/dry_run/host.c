/* SPDX-License-Identifier: Apache-2.0 */
/* Adds up how much of this machine's memory the processes of a dry run hold. */
#include "shim/cli/dry_run/host.h"

#include <unistd.h>

#include "allocator/base/buffer.h"
#include "shim/cli/launch/descendants.h"
#include "shim/tables/host_bytes.h"

#define KEPT_PART 20 /* one part in this many of what is available is left to the machine */
#define LEAST     (UINT64_C(128) << 20) /* below this the kernel begins to end processes */

uint64_t ms_dry_host_room(void)
{
    const uint64_t available_bytes = ms_host_available_bytes("");

    return available_bytes - available_bytes / KEPT_PART;
}

/* What processes share, files and the simulated devices' contents, is small, and would count once
 * for each of them. */
static uint64_t held_bytes(void)
{
    struct ms_buffer ours = {0};
    uint64_t bytes = 0;

    ms_descendants_find(getpid(), &ours);
    for (size_t i = 0; i < ms_descendants_count(&ours); i++) {
        bytes += ms_descendants_at(&ours, i)->private_bytes;
    }
    ms_buffer_free(&ours);
    return bytes;
}

bool ms_dry_host_look(struct ms_dry_host *host)
{
    const uint64_t bytes = held_bytes();

    host->most_bytes = bytes > host->most_bytes ? bytes : host->most_bytes;
    return host->limit_bytes == 0 ||
           (bytes <= host->limit_bytes && ms_host_available_bytes("") >= LEAST);
}
