/* SPDX-License-Identifier: Apache-2.0 */
/* Loaded code files: which one an address lies in, and when one is unloaded. */
#ifndef MEMSHIM_SHIM_SITES_NATIVE_MODULES_H
#define MEMSHIM_SHIM_SITES_NATIVE_MODULES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The lower 16 bits count the calls of dlclose under way; the bits above count how many calls
 * unloaded something. What was learned of an address holds as long as the epoch is the same. While
 * a dlclose is under way nothing holds, and nothing may be kept. */
extern _Atomic uint64_t ms_modules_epoch;

static inline uint64_t ms_modules_now(void)
{
    return atomic_load_explicit(&ms_modules_epoch, memory_order_acquire);
}

static inline bool ms_modules_steady(uint64_t epoch)
{
    return (epoch & 0xffff) == 0;
}

/* Starts to watch for unloading. Idempotent; takes the loader's short lock. */
void ms_modules_prepare(void);

/* The unwind tables for the code at an address: its file's .eh_frame_hdr; null if the file has
 * none, or no file is there. Takes no lock if the C library has _dl_find_object (glibc 2.35). */
const uint8_t *ms_modules_tables(uint64_t address);

#endif
