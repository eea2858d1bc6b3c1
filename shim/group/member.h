/* SPDX-License-Identifier: Apache-2.0 */
/* A member as this room sees it. */
#ifndef MEMSHIM_SHIM_GROUP_MEMBER_H
#define MEMSHIM_SHIM_GROUP_MEMBER_H

#include "shim/group/file.h"
#include "shim/group/group.h"

struct ms_group {
    struct ms_group_region *region;
    struct ms_group_slot *own;
    char path[MS_GROUP_PATH_BYTES];
    /* Of each other one that has let a question pass: its pid, and below the question. */
    _Atomic uint64_t deaf[MS_GROUP_MEMBERS_MAX];
};

#endif
