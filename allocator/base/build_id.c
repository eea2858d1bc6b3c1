/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the build id among the notes of a file of code. */
#include "allocator/base/build_id.h"

#include <elf.h>
#include <link.h>
#include <string.h>

const uint8_t *ms_build_id_find(const uint8_t *notes, size_t bytes, size_t align, size_t *id_bytes)
{
    const uint8_t *at = notes, *end = notes + bytes;

    align = align == 8 ? 8 : 4;
    while ((size_t)(end - at) >= sizeof(ElfW(Nhdr))) {
        const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)at;
        const size_t name_bytes = (note->n_namesz + align - 1) / align * align;
        const size_t padded_bytes = (note->n_descsz + align - 1) / align * align;
        const uint8_t *name = at + sizeof(*note);

        if (name_bytes > (size_t)(end - name) || padded_bytes > (size_t)(end - name) - name_bytes) {
            return NULL;
        }
        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == sizeof("GNU") &&
            memcmp(name, "GNU", sizeof("GNU")) == 0) {
            *id_bytes = note->n_descsz;
            return name + name_bytes;
        }
        at = name + name_bytes + padded_bytes;
    }
    return NULL;
}
