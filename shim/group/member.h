/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a member inside its own process. */
#ifndef MEMSHIM_SHIM_GROUP_MEMBER_H
#define MEMSHIM_SHIM_GROUP_MEMBER_H

#include "shim/group/file.h"
#include "shim/group/group.h"

struct ms_group {
    struct ms_group_region *region;
    struct ms_group_slot *own;
    char path[MS_GROUP_PATH_BYTES];
    /* For each other member that did not answer in time: its pid, and in the lower half the
     * question. */
    _Atomic uint64_t deaf[MS_GROUP_MEMBERS_MAX];
};

#endif
