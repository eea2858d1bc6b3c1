/* SPDX-License-Identifier: Apache-2.0 */
/* The loaded files of code: which one an address lies in, and when one goes. */
#ifndef MEMSHIM_SHIM_SITES_MODULES_H
#define MEMSHIM_SHIM_SITES_MODULES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The lower 16 bits count the calls of dlclose that are under way, the bits above how often one of
 * them unloaded something. What was learned of an address under one epoch is true as long as the
 * epoch is the same: while a dlclose is under way nothing is, and nothing is to be kept. */
extern _Atomic uint64_t ms_modules_epoch;

static inline uint64_t ms_modules_now(void)
{
    return atomic_load_explicit(&ms_modules_epoch, memory_order_acquire);
}

static inline bool ms_modules_steady(uint64_t epoch)
{
    return (epoch & 0xffff) == 0;
}

/* From here on unloading is watched. Idempotent; takes the loader's short lock. */
void ms_modules_prepare(void);

/* The unwind tables for the code at an address: its file's .eh_frame_hdr; null where it has none or
 * no file is there. Takes no lock where the C library has _dl_find_object (glibc 2.35). */
const uint8_t *ms_modules_tables(uint64_t address);

#endif
