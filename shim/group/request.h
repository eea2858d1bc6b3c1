/* SPDX-License-Identifier: Apache-2.0 */
/* What a member that needs memory asks of the others: a bit in their slots, and a futex on which
 * their threads wait. The asking thread holds no lock meanwhile, and waits for a limited time. */
#ifndef MEMSHIM_SHIM_GROUP_REQUEST_H
#define MEMSHIM_SHIM_GROUP_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/group/group.h"

enum ms_group_want {
    MS_GROUP_GIVE = 1,  /* give what is in no block, and what is leased and unused; and say how cold
                           its coldest memory is */
    MS_GROUP_SPILL = 2, /* move its coldest memory to the host */
};

/* Wakes members that wait for bytes, which then check the free bytes again. */
void ms_group_changed(ms_group_t *group);

/* Asks all other members to give so many bytes, and waits until the group has them free, all have
 * answered, or wait_ns is over. True: the group has them. */
bool ms_group_ask_all(ms_group_t *group, uint64_t bytes, uint64_t wait_ns);

/* Asks one member after the other to move bytes to the host, the coldest memory first, until one
 * gave something or wait_ns is over. Asks those who said that their coldest memory was last used
 * before own_ns; with UINT64_MAX all, also those that could move nothing when they last answered.
 * True: one gave something. */
bool ms_group_ask_spill(ms_group_t *group, uint64_t own_ns, uint64_t bytes, uint64_t wait_ns);

/* For the member's own thread: waits until it is asked, for wait_ns at most. False: it was not
 * asked. wants: bits of enum ms_group_want. */
struct ms_group_question {
    uint32_t serial, wants;
    uint64_t bytes;
};
bool ms_group_wait(ms_group_t *group, struct ms_group_question *question, uint64_t wait_ns);

/* Publishes how much the member would give at once. */
void ms_group_tell_spare(ms_group_t *group, uint64_t spare_bytes);

/* Publishes that the question was answered. coldest_ns: when the coldest memory that could move to
 * the host was last used. */
void ms_group_answer(ms_group_t *group, const struct ms_group_question *question,
                     uint64_t spare_bytes, uint64_t coldest_ns, uint64_t yielded_bytes);

#endif
