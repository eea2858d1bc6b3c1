/* SPDX-License-Identifier: Apache-2.0 */
/* What the processes of a group share of one device: a file in shared memory.
 *
 * Nothing in it is guarded by a lock. A member writes its own slot alone, and its lease is one
 * atomic number there: a member that is killed anywhere leaves nothing half done. Slots change
 * hands under the lock of the file (file.h). */
#ifndef MEMSHIM_SHIM_GROUP_LAYOUT_H
#define MEMSHIM_SHIM_GROUP_LAYOUT_H

#include <stdatomic.h>
#include <stdint.h>

#define MS_GROUP_MEMBERS_MAX 64u
#define MS_GROUP_MAGIC       UINT64_C(0x3147726d6873656d) /* changes with the layout */
#define MS_GROUP_NAME_BYTES  32u

struct ms_group_slot {
    _Atomic uint32_t pid; /* 0: nobody's; the last that a new member writes */
    int32_t rank;         /* -1: unknown */
    uint64_t start_ticks; /* when the process started (field 22 of /proc/PID/stat) */
    char name[MS_GROUP_NAME_BYTES];
    _Atomic uint64_t leased_bytes; /* of the cap, what nobody else may have */
    _Atomic uint64_t used_bytes;   /* of those, what is charged or earmarked */
    _Atomic uint64_t spare_bytes;  /* of those, what it would give at once: free in its pool */

    /* What others want of it (request.h). */
    _Atomic uint32_t asked;    /* counts questions; a futex: the member's thread waits for it */
    _Atomic uint32_t answered; /* the last question that was attended to */
    _Atomic uint32_t wanted;   /* bits of enum ms_group_want */
    _Atomic uint64_t wanted_bytes;
    _Atomic uint64_t coldest_ns; /* CLOCK_MONOTONIC: when the coldest of what it could move to the
                                    host was used last; UINT64_MAX: it can move nothing */
    _Atomic uint64_t yielded_bytes; /* given to others when they asked, in all */
};

struct ms_group_region {
    uint64_t magic; /* the last that is written when the region is made */
    uint64_t pid_namespace;
    uint64_t total_bytes; /* of the device */
    uint64_t cap_bytes;   /* of all members together */
    uint8_t uuid[16];
    _Atomic uint64_t context_bytes; /* the most that a context of a member took */
    _Atomic uint32_t changes;       /* counts what was given back; a futex: who is short waits */
    uint32_t reserved;
    struct ms_group_slot slots[MS_GROUP_MEMBERS_MAX];
};

#endif
