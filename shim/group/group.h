/* SPDX-License-Identifier: Apache-2.0 */
/* One cap for all processes of a group on a device: each leases room from it, and may use what it
 * leased.
 *
 * A lease is one atomic number in the member's slot. A member that wants more first adds that to
 * its own lease, and then sums all leases. If the sum exceeds the cap, it takes its addition back.
 * Of two members that do so at once, at least one sees the other's addition, so that valid leases
 * together never exceed the cap. No lock is needed. */
#ifndef MEMSHIM_SHIM_GROUP_GROUP_H
#define MEMSHIM_SHIM_GROUP_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/group/layout.h"

struct ms_group_wish {
    const char *folder; /* MS_GROUP_FOLDER */
    const char *name;   /* "run-..." or "group-..." */
    uint8_t uuid[16];   /* of the device, which may have another ordinal in other processes */
    uint64_t total_bytes, cap_bytes;
    int32_t rank;        /* -1: unknown */
    const char *program; /* shortened name */
};

typedef struct ms_group ms_group_t;

/* Makes this process a member of the group on that device, until the process ends. The first
 * member's cap counts. On failure null, and *why. */
ms_group_t *ms_group_join(const struct ms_group_wish *wish, const char **why);

/* Ends the membership of a process that did not use the device after all, and holds nothing. */
void ms_group_leave(ms_group_t *group);

uint64_t ms_group_cap_bytes(const ms_group_t *group);

/* Leases at least `least` bytes more, and up to `most` if the group has them. Returns how many: 0
 * or at least `least`. Looks for members that have ended before it gives up. */
uint64_t ms_group_lease(ms_group_t *group, uint64_t least, uint64_t most);

/* Takes the leases of members that have ended back into the group. False: there were none. */
bool ms_group_reap_ended(ms_group_t *group);

/* Leases bytes that the driver has already taken, even beyond the cap. */
void ms_group_impose(ms_group_t *group, uint64_t bytes);

/* Returns leased bytes. */
void ms_group_give(ms_group_t *group, uint64_t bytes);

/* Bytes that nobody has leased. No lock, no system call. */
uint64_t ms_group_free_bytes(const ms_group_t *group);

/* Bytes that others have leased and not used, or would give at once. */
uint64_t ms_group_spare_bytes(const ms_group_t *group);

/* Publishes how much of its lease this member uses. */
void ms_group_tell(ms_group_t *group, uint64_t used_bytes);

/* Publish, and read, the most that a context of any member took. */
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
/* What all others have leased; *count: how many they are. */
uint64_t ms_group_others_bytes(const ms_group_t *group, uint32_t *count);
/* What all others have leased since they joined: grows with each lease, so a difference of two
 * tells what they took meanwhile. */
uint64_t ms_group_taken_by_others(const ms_group_t *group);
/* What all others use of their leases. */
uint64_t ms_group_used_by_others(const ms_group_t *group);

/* What the members of a region use; *count: how many they are. Without the member `pid`, if that is
 * not 0. */
uint64_t ms_group_used_bytes(const struct ms_group_region *region, uint32_t pid, uint32_t *count);

#endif
