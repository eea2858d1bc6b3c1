/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to the process that owns a block which this one has open or is about to open. One link
 * to each process. Lock IMPORTS. */
#ifndef MEMSHIM_SHIM_SHARING_LINK_H
#define MEMSHIM_SHIM_SHARING_LINK_H

#include "shim/driver/hook.h"
#include "shim/sharing/wire.h"

struct ms_share_link;

/* The link to the process, with one more user. Null: it does not listen (any more), belongs to
 * another user, or does not answer. */
struct ms_share_link *ms_share_link_use(const struct ms_share_key *process);
void ms_share_link_leave(struct ms_share_link *link);

/* Asks, and waits for the answer, a second at most. fds: room for MS_SHARE_BATCH descriptors, which
 * the caller owns; *count: how many came. False: no answer. */
bool ms_share_link_ask(struct ms_share_link *link, enum ms_share_question question,
                       const struct ms_share_key *block, uint64_t from,
                       struct ms_share_answer *answer, int *fds, size_t *count);

/* MS_SHARE_CLOSE. */
void ms_share_link_close_block(struct ms_share_link *link, const struct ms_share_key *block);

#endif
