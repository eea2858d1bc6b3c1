/* SPDX-License-Identifier: Apache-2.0 */
/* Adds up how much of this machine's memory the processes of a dry run hold. */
#include "shim/cli/dry_run/host.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "allocator/base/arithmetic.h"
#include "allocator/base/buffer.h"
#include "shim/cli/launch/descendants.h"
#include "shim/tables/host_bytes.h"

#define KEPT_PART 20 /* one part in this many of what is available is left to the machine */
#define LEAST     (UINT64_C(128) << 20) /* below this the kernel begins to end processes */
#define TOLD      (UINT64_C(1) << 20)   /* less is what any program leaves in caches */

uint64_t ms_dry_host_room(void)
{
    const uint64_t available_bytes = ms_host_available_bytes("");

    return available_bytes - available_bytes / KEPT_PART;
}

/* It is mounted where the command's processes alone see it. Once open, it can also be asked when
 * they have ended. */
static void find_layer(struct ms_dry_host *host, pid_t process)
{
    char path[PATH_MAX];
    struct stat here, there;
    const int folder = snprintf(path, sizeof(path), "/proc/%d/root%s", (int)process,
                                host->scratch) < (int)sizeof(path)
                           ? open(path, O_PATH | O_DIRECTORY | O_CLOEXEC)
                           : -1;

    if (folder >= 0 && fstat(folder, &there) == 0 && stat(host->scratch, &here) == 0 &&
        here.st_dev != there.st_dev) {
        host->layer = folder;
    } else if (folder >= 0) {
        (void)close(folder);
    }
}

static uint64_t layer_bytes(struct ms_dry_host *host)
{
    struct statfs layer;
    uint64_t bytes;

    if (host->layer < 0 || fstatfs(host->layer, &layer) != 0) {
        return 0;
    }
    bytes = (layer.f_blocks - layer.f_bfree) * (uint64_t)layer.f_bsize;
    if (bytes >= TOLD) {
        host->written_bytes = ms_most(host->written_bytes, bytes);
    }
    if (layer.f_bfree == 0) {
        host->full_bytes = layer.f_blocks * (uint64_t)layer.f_bsize;
    }
    return bytes;
}

/* What processes share, files and the simulated devices' contents, is small, and would count once
 * for each of them. */
static uint64_t held_bytes(struct ms_dry_host *host)
{
    struct ms_buffer ours = {0};
    uint64_t bytes = 0;

    ms_descendants_find(getpid(), &ours);
    for (size_t i = 0; i < ms_descendants_count(&ours); i++) {
        bytes += ms_descendants_at(&ours, i)->private_bytes;
        if (host->scratch && host->layer < 0) {
            find_layer(host, ms_descendants_at(&ours, i)->pid);
        }
    }
    ms_buffer_free(&ours);
    return bytes + layer_bytes(host);
}

bool ms_dry_host_look(struct ms_dry_host *host)
{
    const uint64_t bytes = held_bytes(host);

    host->most_bytes = ms_most(host->most_bytes, bytes);
    return host->limit_bytes == 0 ||
           (bytes <= host->limit_bytes && ms_host_available_bytes("") >= LEAST);
}

void ms_dry_host_end(struct ms_dry_host *host)
{
    host->most_bytes = ms_most(host->most_bytes, layer_bytes(host));
    if (host->layer >= 0) {
        (void)close(host->layer);
        host->layer = -1;
    }
}
