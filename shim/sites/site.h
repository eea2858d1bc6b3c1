/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites: the stack that asks for memory, as one number.
 *
 * Every hook that hands out memory, and every report of a tensor's allocation, captures a site
 * once, before it takes any lock, and puts the number into its events. The trace records the
 * number's meaning the first time (report/trace/definitions.h). */
#ifndef MEMSHIM_SHIM_SITES_SITE_H
#define MEMSHIM_SHIM_SITES_SITE_H

#include <stdbool.h>
#include <stdint.h>

/* To be called once for the process, before its first capture, when no lock is held for which a
 * library's constructor could wait: when a device is first used. Does nothing if no site will be
 * recorded. */
void ms_sites_prepare(void);

/* The site of this thread's present call, for an allocation of that many bytes (its weight in
 * sampling). 0 if nothing is recorded (MEMSHIM_STACKS=off without a tag, no trace, no memory for
 * another site). The guard is set and no lock is held. Never takes Python's lock; waits for no
 * other thread, except for the short lock when a site is new. Keeps errno. */
uint32_t ms_site_capture(uint64_t bytes);

/* Until ms_site_lend_end the calling thread waits for others that work for it. The trace records
 * the call (MS_EVENT_CALL). What they allocate, if they have no Python stack, counts for this
 * thread's stack as it is now. If several threads lend theirs, none counts, because it is unknown
 * for whom a worker works. The guard is set, and no lock is held. False: nothing is lent, and
 * nothing is to be ended. */
bool ms_site_lend(void);
void ms_site_lend_end(void);

/* Whether the site's memory was requested in an optimizer's step (torch.optim's, or a subclass's)
 * or in its load_state_dict. That covers optimizer state and what a step works with, but nothing of
 * a model that an optimizer's closure runs. False for 0, for a number that is no site's yet, and
 * for a site without Python frames (MEMSHIM_STACKS=native or off). Any thread, no lock, a few
 * instructions. It is determined before the site's number is given out, so whoever got the number
 * with memory ordering sees it. */
bool ms_site_is_optimizers(uint32_t site);

#endif
