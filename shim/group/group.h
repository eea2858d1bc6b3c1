/* SPDX-License-Identifier: Apache-2.0 */
/* One cap for all processes of a group on a device: each leases room of it, and has what it leased.
 *
 * A lease is one atomic number in the member's slot. A member that wants more adds that to its own,
 * and then sums all: where that is more than the cap it takes it back. Of two who do so at once at
 * least one sees the other's, so that leases that were found good are never more than the cap
 * together. No lock is taken for it. */
#ifndef MEMSHIM_SHIM_GROUP_GROUP_H
#define MEMSHIM_SHIM_GROUP_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/group/layout.h"

struct ms_group_wish {
    const char *folder; /* MS_GROUP_FOLDER */
    const char *name;   /* "run-..." or "group-..." */
    uint8_t uuid[16];   /* of the device: its number is another one in other processes */
    uint64_t total_bytes, cap_bytes;
    int32_t rank;        /* -1: unknown */
    const char *program; /* shortened */
};

typedef struct ms_group ms_group_t;

/* Makes this process a member of the group on that device; good until it ends. The cap is that of
 * whoever came first. Null, and why. */
ms_group_t *ms_group_join(const struct ms_group_wish *wish, const char **why);

/* It is none any more, and holds nothing: of a device that was not used after all. */
void ms_group_leave(ms_group_t *group);

uint64_t ms_group_cap_bytes(const ms_group_t *group);

/* Leases `least` bytes more, or up to `most` where the group has them. Returns how many: 0 or at
 * least `least`. Looks for members that have ended before it gives up. */
uint64_t ms_group_lease(ms_group_t *group, uint64_t least, uint64_t most);

/* What members had that have ended comes back. False: nothing did. */
bool ms_group_reap_ended(ms_group_t *group);

/* Leases bytes that the driver has already taken, also where that passes the cap. */
void ms_group_impose(ms_group_t *group, uint64_t bytes);

/* Gives leased bytes back. */
void ms_group_give(ms_group_t *group, uint64_t bytes);

/* What nobody has leased. No lock, no call. */
uint64_t ms_group_free_bytes(const ms_group_t *group);

/* What others have leased and not used, or would give at once. */
uint64_t ms_group_spare_bytes(const ms_group_t *group);

/* Tells the others. */
void ms_group_tell(ms_group_t *group, uint64_t used_bytes);

/* The most that a context of a member took: set, and read. */
void ms_group_tell_context(ms_group_t *group, uint64_t bytes);
uint64_t ms_group_context_bytes(const ms_group_t *group);

/* The other member that holds most. False: there is none. */
struct ms_group_share {
    uint32_t pid;
    int32_t rank;
    uint64_t leased_bytes;
    char name[MS_GROUP_NAME_BYTES];
};
bool ms_group_largest_other(const ms_group_t *group, struct ms_group_share *out);
/* What all others have leased, and how many they are. */
uint64_t ms_group_others_bytes(const ms_group_t *group, uint32_t *count);

#endif
