/* SPDX-License-Identifier: Apache-2.0 */
/* What the processes of a group share for one device: a file in shared memory.
 *
 * No lock guards its contents. A member writes only its own slot, and its lease is one atomic
 * number there. So a member that is killed at any point leaves nothing inconsistent. Slots change
 * owners under the lock of the file (file.h). */
#ifndef MEMSHIM_SHIM_GROUP_LAYOUT_H
#define MEMSHIM_SHIM_GROUP_LAYOUT_H

#include <stdatomic.h>
#include <stdint.h>

#define MS_GROUP_MEMBERS_MAX 64u
#define MS_GROUP_MAGIC       UINT64_C(0x3247726d6873656d) /* changes with the layout */
#define MS_GROUP_NAME_BYTES  32u

struct ms_group_slot {
    _Atomic uint32_t pid; /* 0: free; a new member writes it last */
    int32_t rank;         /* -1: unknown */
    uint64_t start_ticks; /* when the process started (field 22 of /proc/PID/stat) */
    char name[MS_GROUP_NAME_BYTES];
    _Atomic uint64_t leased_bytes; /* its part of the cap, which nobody else may use */
    _Atomic uint64_t used_bytes;   /* the part of that which is charged or earmarked */
    _Atomic uint64_t spare_bytes;  /* the part of that which it would give at once: free in its
                                      pool */

    /* What other members want from it (request.h). */
    _Atomic uint32_t asked;    /* counts questions; a futex on which the member's thread waits */
    _Atomic uint32_t heard;    /* the last question that its thread took up */
    _Atomic uint32_t answered; /* the last question that was answered */
    _Atomic uint32_t wanted;   /* bits of enum ms_group_want */
    _Atomic uint64_t wanted_bytes;
    _Atomic uint64_t coldest_ns; /* CLOCK_MONOTONIC: when the coldest memory that it could move to
                                    the host was last used; UINT64_MAX: it can move nothing */
    _Atomic uint64_t yielded_bytes; /* given to others on request, in total */
    _Atomic uint64_t taken_bytes;   /* leased, in total */
};

struct ms_group_region {
    uint64_t magic; /* written last when the region is made */
    uint64_t pid_namespace;
    uint64_t total_bytes; /* of the device */
    uint64_t cap_bytes;   /* of all members together */
    uint8_t uuid[16];
    _Atomic uint64_t context_bytes; /* the most that a context of a member took */
    _Atomic uint32_t changes;       /* counts returns of memory; a futex on which members that need
                                       memory wait */
    uint32_t reserved;
    struct ms_group_slot slots[MS_GROUP_MEMBERS_MAX];
};

#endif
