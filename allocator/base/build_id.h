/* SPDX-License-Identifier: Apache-2.0 */
/* The id that the linker gives a file of code, in its notes. */
#ifndef MEMSHIM_ALLOCATOR_BASE_BUILD_ID_H
#define MEMSHIM_ALLOCATOR_BASE_BUILD_ID_H

#include <stddef.h>
#include <stdint.h>

/* Finds the id in `notes`, a segment of type PT_NOTE, `bytes` long, with this alignment. Also gives
 * the id's length, at most what the notes hold. Null: there is none. Pure. */
const uint8_t *ms_build_id_find(const uint8_t *notes, size_t bytes, size_t align, size_t *id_bytes);

#endif
