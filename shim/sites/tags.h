/* Names that the program gives its phases: memshim_tag_push and pop of memshim.h, NVTX ranges. */
#ifndef MEMSHIM_SHIM_SITES_TAGS_H
#define MEMSHIM_SHIM_SITES_TAGS_H

#include <stdint.h>

/* The innermost tag of this thread, 0 where there is none: a few instructions. The number is an id
 * of MS_DEFINE_TAG, defined in the trace already where there is one. */
uint32_t ms_tag_current(void);

#endif
