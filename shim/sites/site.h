/* Call sites: which stack asks for memory, as one number.
 *
 * Every hook that hands memory out, and every reported birth of a tensor, asks once, before it
 * takes any lock, and puts the number into its events. What the number means is told to the trace
 * the first time (report/definitions.h). */
#ifndef MEMSHIM_SHIM_SITES_SITE_H
#define MEMSHIM_SHIM_SITES_SITE_H

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

/* Around fork: the locks behind it. */
void ms_sites_fork_prepare(void);
void ms_sites_fork_parent(void);
void ms_sites_fork_child(void);

#endif
