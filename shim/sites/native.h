/* SPDX-License-Identifier: Apache-2.0 */
/* The calling thread's native stack, walked by unwind tables.
 *
 * A stack that came before is known again by the words that a walk would read (native_known.h), and
 * one that is close to the one walked last is not walked to its end: frames are remembered with
 * where they lie, and from the first that is found unchanged (the same function at the same place,
 * every return address below still there) on the rest is taken over. */
#ifndef MEMSHIM_SHIM_SITES_NATIVE_H
#define MEMSHIM_SHIM_SITES_NATIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/sites/native_step.h"
#include "shim/tables/options.h"

#include "report/trace/definitions.h"

/* The asker's own, 0 at first: what it last wrote there for this very stack of this thread. */
struct ms_native_note {
    uint32_t node, site;
};

struct ms_native_stack {
    const uint64_t *addresses; /* return addresses, innermost first, libmemshim's own on top left
                                  out; the thread's own memory, good until its next capture. An
                                  instruction that a signal interrupted stands there plus one, so
                                  that minus one is always inside of what was under way */
    uint32_t count;
    bool cut; /* there are more than `depth` */
    bool
        lost; /* ended at code that has no unwind tables, or on a stack that does not read as one */
    uint64_t hash;       /* of addresses[0 .. count), good for a table */
    uint64_t generation; /* how often libraries have been unloaded: what an address meant under
                            another generation may have been other code */
    struct ms_native_note *note; /* null where the stack is not one of those known */
};

/* Loads libunwind, out of everybody's sight. Once, where no lock is held that a library's
 * constructor could wait for: when the device is first used. Without it only the shim's own reading
 * of unwind tables serves. */
void ms_native_prepare(void);

/* depth: 1 to MS_STACK_DEPTH_MAX. Async-signal-tolerant: a signal handler that allocates gets its
 * own stack, or an empty one, never a damaged one (the guard keeps it from coming while an earlier
 * stack of the thread is in use). Reads nothing but the thread's own stack. errno stays. The
 * first capture of code that was not met before may cost some microseconds and take libunwind's and
 * the loader's short locks; no later one does. */
void ms_native_capture(uint32_t depth, struct ms_native_stack *out);

/* The same from that frame on, which is one of the calling thread's that called this; null, or with
 * sp 0: from the caller on. */
void ms_native_capture_from(const struct ms_step_at *from, uint32_t depth,
                            struct ms_native_stack *out);

/* Which file the code at an address comes from. False: none (made at run time). `path` (path_bytes
 * long; PATH_MAX for names that are not absolute yet) gets its absolute path. Not on the hot path;
 * takes a lock. generation: another for the same file loaded anew. */
struct ms_native_module {
    uint64_t base, bytes, generation;
    uint32_t build_id_bytes;
    uint8_t build_id[MS_BUILD_ID_BYTES];
};
bool ms_native_module(uint64_t address, struct ms_native_module *out, char *path,
                      uint32_t path_bytes);

/* What keeps stacks from being walked here, or some of them from being walked to their end; null
 * where nothing does. */
const char *ms_native_refusal(void);

#endif
