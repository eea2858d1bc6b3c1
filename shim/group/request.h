/* SPDX-License-Identifier: Apache-2.0 */
/* What a member that is short asks of the others: a bit in their slots, and a futex at which their
 * threads wait. Who asks holds no lock meanwhile, and waits for a bounded time. */
#ifndef MEMSHIM_SHIM_GROUP_REQUEST_H
#define MEMSHIM_SHIM_GROUP_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/group/group.h"

enum ms_group_want {
    MS_GROUP_GIVE = 1,  /* what lies in nobody's block, and what is leased and not used; and to say
                           how cold its coldest is */
    MS_GROUP_SPILL = 2, /* to move what is coldest to the host */
};

/* Who waits for bytes looks again. */
void ms_group_changed(ms_group_t *group);

/* Asks all other members to give so many bytes, and waits until the group has them free, all have
 * answered, or the time is over. True: the group has them. */
bool ms_group_ask_all(ms_group_t *group, uint64_t bytes, uint64_t wait_ns);

/* The other member whose coldest memory was used before `own_ns`, or longest ago. False: none. */
bool ms_group_coldest_other(const ms_group_t *group, uint64_t own_ns, uint32_t *member);

/* Asks that one to move bytes to the host, and waits likewise. True: it gave something. */
bool ms_group_ask_spill(ms_group_t *group, uint32_t member, uint64_t bytes, uint64_t wait_ns);

/* The member's own thread: waits until it is asked, or for the time. False: it was not asked.
 * wants: bits of enum ms_group_want. */
struct ms_group_question {
    uint32_t serial, wants;
    uint64_t bytes;
};
bool ms_group_wait(ms_group_t *group, struct ms_group_question *question, uint64_t wait_ns);

/* Tells the others how much the member would give at once. */
void ms_group_tell_spare(ms_group_t *group, uint64_t spare_bytes);

/* It was attended to; the coldest that could move to the host was used last at coldest_ns. */
void ms_group_answer(ms_group_t *group, const struct ms_group_question *question,
                     uint64_t spare_bytes, uint64_t coldest_ns, uint64_t yielded_bytes);

#endif
