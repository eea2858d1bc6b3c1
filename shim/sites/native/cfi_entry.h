/* SPDX-License-Identifier: Apache-2.0 */
/* The entries of .eh_frame (CIE and FDE), and the binary search table of .eh_frame_hdr that finds
 * them (Linux Standard Base, "Exception Frames"). The tables belong to running code and are
 * trusted. No function here takes a lock or allocates. */
#ifndef MS_SITES_CFI_ENTRY_H
#define MS_SITES_CFI_ENTRY_H

#include "shim/sites/native/cfi_reader.h"

/* DWARF's register numbers (System V ABI for AMD64, "DWARF Register Number Mapping"). */
enum { MS_REGISTER_BP = 6, MS_REGISTER_SP = 7, MS_REGISTER_RETURN = 16 };

struct ms_cfi_entry { /* a frame description (FDE) and the common part that it names (CIE) */
    struct ms_cfi_reader common, own;
    uint64_t begin, bytes; /* of the code that it describes */
    uint64_t code_align;
    int64_t data_align;
    uint8_t encoding;
    bool sized, signal;
};

/* The entry that may describe the code at an address. tables: the address of .eh_frame_hdr. False:
 * the table is not of the usual form. *at: null if no entry can cover the address. */
bool ms_cfi_find_entry(const uint8_t *tables, uint64_t address, const uint8_t **at);

/* Reads the entry that ms_cfi_find_entry found. False if its form is unknown. Its two programs
 * point into the tables. */
bool ms_cfi_read_entry(struct ms_cfi_entry *entry, const uint8_t *at);

#endif
