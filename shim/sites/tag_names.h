/* SPDX-License-Identifier: Apache-2.0 */
/* The names of tags as numbers: a name and the tag that it was pushed in make one id of
 * MS_DEFINE_TAG, the same for every thread and for good. */
#ifndef MEMSHIM_SHIM_SITES_TAG_NAMES_H
#define MEMSHIM_SHIM_SITES_TAG_NAMES_H

#include <stddef.h>
#include <stdint.h>

#define MS_TAG_NAME_BYTES 256u   /* of a name; a longer one is cut before a character of UTF-8 */
#define MS_TAGS_MAX       65536u /* names in all */

/* The id of that name within `outer` (0: in none). A name that was met before takes no lock; a new
 * one takes a short lock and host memory. `outer` itself where the name is empty, and for new names
 * once there are MS_TAGS_MAX, said once. color: of the first that gives the name. errno stays. */
uint32_t ms_tag_name(uint32_t outer, const char *name, size_t bytes, uint32_t color);

/* Before an id goes into an event or a site: its definition, and those of the tags around it, are
 * in the trace afterwards, if there is one. Most calls are two loads. */
void ms_tag_define(uint32_t id);

#endif
