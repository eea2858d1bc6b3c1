/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites: which stack asks for memory, as one number.
 *
 * Every hook that hands memory out, and every reported allocation of a tensor, asks once, before it
 * takes any lock, and puts the number into its events. What the number means is recorded in the
 * trace the first time (report/trace/definitions.h). */
#ifndef MEMSHIM_SHIM_SITES_SITE_H
#define MEMSHIM_SHIM_SITES_SITE_H

#include <stdbool.h>
#include <stdint.h>

/* Once for the process, before its first capture, where no lock is held that a library's
 * constructor could wait for: when a device is first used. Nothing where no site will be recorded.
 */
void ms_sites_prepare(void);

/* The site of the call that is under way on this thread, for an allocation of that many bytes (what
 * sampling weighs). 0 where nothing is recorded (MEMSHIM_STACKS=off and no tag pushed, no trace, no
 * memory for another site). The guard is set and no lock is held. Never takes Python's lock, never
 * blocks for another thread but for the short lock of a site that is new. errno stays. */
uint32_t ms_site_capture(uint64_t bytes);

/* From here to its end the calling thread waits for others that work for it: what they ask for,
 * where they have no Python stack themselves, is asked for by this thread's as it is now. Nobody's
 * counts while several threads lend theirs: none can say whose work a worker does. The guard is
 * set, and no lock is held. False: nothing is lent, and nothing is to be ended. */
bool ms_site_lend(void);
void ms_site_lend_end(void);

/* Whether the site's memory was asked for in an optimizer's step (torch.optim's, or a subclass's)
 * or in its load_state_dict: so optimizer state and what a step works with, and nothing of a model
 * that an optimizer's closure runs. False for 0, a number that is no site's yet, and a site without
 * Python frames (MEMSHIM_STACKS=native or off). Any thread, no lock, a few instructions: it is
 * found out when the site is met, and kept before the site's number is given out, so whoever was
 * handed the number in a way that orders memory sees it. */
bool ms_site_is_optimizers(uint32_t site);

#endif
