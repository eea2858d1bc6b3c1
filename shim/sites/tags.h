/* SPDX-License-Identifier: Apache-2.0 */
/* Names that the program gives its phases: memshim_tag_push and pop of memshim.h, NVTX ranges.
 *
 * A thread's open tags are a stack. Each tag has an owner number, and an owner pops only its own
 * tags: the public functions and each NVTX domain nest independently. */
#ifndef MEMSHIM_SHIM_SITES_TAGS_H
#define MEMSHIM_SHIM_SITES_TAGS_H

#include <stddef.h>
#include <stdint.h>

#include "allocator/base/event.h"

#define MS_TAG_DEPTH_MAX 64u /* what is pushed inside so many counts as the innermost of them */

/* This thread's innermost tag. If it has none: that of the only thread with any; otherwise 0. A few
 * instructions. The number is an id of MS_DEFINE_TAG, and defined in the trace if there is one. */
uint32_t ms_tag_current(void);

/* Owners; those of NVTX domains follow. */
enum ms_tag_owner { MS_TAG_PUBLIC, MS_TAG_NVTX };

/* name: `bytes` long; empty: a level without a name. color: 0xAARRGGBB or 0. Returns how many tags
 * of this owner are open around it. */
int ms_tag_push(uint16_t owner, const char *name, size_t bytes, uint32_t color);

/* Ends the owner's innermost tag. Returns how many of this owner were around it; -1: none was
 * open. */
int ms_tag_pop(uint16_t owner);

/* A range of the whole process, which any thread may end. It is recorded as a tag of thread 0, and
 * no memory counts for it. Returns its tag; 0 if it has none. */
uint32_t ms_tag_start(const char *name, size_t bytes, uint32_t color);
void ms_tag_end(uint32_t tag);

/* A training step begins here. Each source counts its own. */
void ms_step(enum ms_step_source source);

/* How many steps have begun, by the source that reported more. */
uint64_t ms_steps_recorded(void);

#endif
