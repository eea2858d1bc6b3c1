/* SPDX-License-Identifier: Apache-2.0 */
/* A table of descriptors, which belong to the program: it may have closed them. */
#include "shim/sharing/lent.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/base/cancel.h"
#include "allocator/base/locks/lock.h"
#include "shim/sharing/descriptor.h"
#include "shim/sharing/export_table.h"
#include "shim/sharing/link.h"

static struct ms_descriptor *lent MS_GUARDED_BY(*MS_LOCK(SHARING));
static size_t lent_count MS_GUARDED_BY(*MS_LOCK(SHARING));
static size_t lent_room MS_GUARDED_BY(*MS_LOCK(SHARING));

/* The entry of that number, or a new one; null: no host memory. */
static struct ms_descriptor *entry_locked(int fd) MS_REQUIRES(*MS_LOCK(SHARING))
{
    for (size_t i = 0; i < lent_count; i++) {
        if (lent[i].fd == fd) {
            return &lent[i];
        }
    }
    if (lent_count == lent_room) {
        const size_t room = lent_room ? 2 * lent_room : 16;
        struct ms_descriptor *more = realloc(lent, room * sizeof *more);
        if (!more) {
            return NULL;
        }
        lent = more;
        lent_room = room;
    }
    return &lent[lent_count++];
}

void ms_lent_note(int fd)
{
    struct ms_share_key process;
    const int cancellation = ms_cancel_hold();
    if (ms_listener_start(&process)) {
        ms_lock_acquire(MS_LOCK(SHARING));
        struct ms_descriptor *entry = entry_locked(fd);
        if (entry) {
            *entry = ms_descriptor_of(fd);
        }
        ms_lock_release(MS_LOCK(SHARING));
    }
    ms_cancel_let(cancellation);
}

int ms_lent_copy(uint64_t number)
{
    int copy = -1;
    ms_lock_acquire(MS_LOCK(SHARING));
    for (size_t i = 0; i < lent_count && copy < 0; i++) {
        if (lent[i].fd >= 0 && (uint64_t)lent[i].fd == number && ms_descriptor_is_ours(&lent[i])) {
            copy = fcntl(lent[i].fd, F_DUPFD_CLOEXEC, 0);
        }
    }
    ms_lock_release(MS_LOCK(SHARING));
    return copy;
}

int ms_lent_take(pid_t process, int fd)
{
    const struct ms_share_key key = ms_share_key_of(process);
    struct ms_share_answer answer;
    int fds[MS_SHARE_BATCH];
    size_t count = 0;
    int taken = -1;
    const int cancellation = ms_cancel_hold();
    ms_lock_acquire(MS_LOCK(IMPORTS));
    struct ms_share_link *link = ms_share_link_use(&key);
    if (link) {
        if (ms_share_link_ask(link, MS_SHARE_LENT, &key, (uint64_t)fd, &answer, fds, &count) &&
            count == 1) {
            taken = fds[0];
        }
        ms_share_link_leave(link);
    }
    ms_lock_release(MS_LOCK(IMPORTS));
    ms_cancel_let(cancellation);
    return taken;
}
