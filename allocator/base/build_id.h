/* SPDX-License-Identifier: Apache-2.0 */
/* The id that the linker gives a file of code, in its notes. */
#ifndef MEMSHIM_ALLOCATOR_BASE_BUILD_ID_H
#define MEMSHIM_ALLOCATOR_BASE_BUILD_ID_H

#include <stddef.h>
#include <stdint.h>

/* The id in `notes` (a segment of type PT_NOTE, `bytes` long, with this alignment) and how many
 * bytes it has, at most those that stand there. Null: there is none. Pure. */
const uint8_t *ms_build_id_find(const uint8_t *notes, size_t bytes, size_t align, size_t *id_bytes);

#endif
