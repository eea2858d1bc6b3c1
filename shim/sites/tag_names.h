/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers for the names of tags. A name, together with the tag in which it was pushed, gets one id
 * of MS_DEFINE_TAG, the same for every thread, forever. */
#ifndef MEMSHIM_SHIM_SITES_TAG_NAMES_H
#define MEMSHIM_SHIM_SITES_TAG_NAMES_H

#include <stddef.h>
#include <stdint.h>

#define MS_TAG_NAME_BYTES 256u   /* of a name; a longer one is cut before a UTF-8 character */
#define MS_TAGS_MAX       65536u /* names in total */

/* The id of that name within `outer` (0: in none). A known name takes no lock; a new one takes a
 * short lock and host memory. Returns `outer` itself for an empty name, and for new names once
 * there are MS_TAGS_MAX, which is logged once. color: the first one given for the name counts.
 * Keeps errno. */
uint32_t ms_tag_name(uint32_t outer, const char *name, size_t bytes, uint32_t color);

/* Call this before an id goes into an event or a site: it makes sure that the definitions of the
 * tag and of the tags around it are in the trace, if there is one. Most calls are two loads. */
void ms_tag_define(uint32_t id);

#endif
