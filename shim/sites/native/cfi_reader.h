/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the numbers of call frame information (DWARF 5, sections 6.4 and 7.6; Linux Standard Base,
 * "Exception Frames"). A reader reads memory of the process, and never past its end. No function
 * here takes a lock or allocates; one reader belongs to one thread. */
#ifndef MS_SITES_CFI_READER_H
#define MS_SITES_CFI_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ms_pointer_encoding {
    MS_POINTER_ABSOLUTE = 0x00,
    MS_POINTER_UDATA2 = 0x02,
    MS_POINTER_UDATA4 = 0x03,
    MS_POINTER_UDATA8 = 0x04,
    MS_POINTER_SDATA2 = 0x0a,
    MS_POINTER_SDATA4 = 0x0b,
    MS_POINTER_SDATA8 = 0x0c,
    MS_POINTER_FORMAT = 0x0f,
    MS_POINTER_PC_RELATIVE = 0x10,
    MS_POINTER_TABLE_RELATIVE = 0x30,
    MS_POINTER_BASE = 0x70,
    MS_POINTER_INDIRECT = 0x80,
    MS_POINTER_OMITTED = 0xff
};

struct ms_cfi_reader {
    const uint8_t *at, *end;
    bool bad; /* reached the end, or met an unknown form */
};

/* The next bytes, 8 at most, as an unsigned number. If fewer are left: 0, and the reader is bad. */
uint64_t ms_cfi_fixed(struct ms_cfi_reader *in, size_t bytes);

/* The next LEB128 number, unsigned or signed. Bad if it does not end, or does not fit into 64
 * bits. */
uint64_t ms_cfi_uleb(struct ms_cfi_reader *in);
int64_t ms_cfi_sleb(struct ms_cfi_reader *in);

/* The next pointer: absolute, or relative to its own address. Any other base is bad.
 * MS_POINTER_INDIRECT is ignored. */
uint64_t ms_cfi_pointer(struct ms_cfi_reader *in, uint8_t encoding);

#endif
