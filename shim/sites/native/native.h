/* SPDX-License-Identifier: Apache-2.0 */
/* The calling thread's native stack, walked with unwind tables.
 *
 * A stack that came before is recognized by the words that a walk would read (native_known.h). A
 * stack close to the last one is not walked to its end: frames are remembered with their place, and
 * from the first unchanged one on (the same function at the same place, every return address
 * further out still there) the rest is reused. */
#ifndef MEMSHIM_SHIM_SITES_NATIVE_NATIVE_H
#define MEMSHIM_SHIM_SITES_NATIVE_NATIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/sites/native/native_step.h"
#include "shim/tables/options.h"

#include "report/trace/definitions.h"

/* For the caller's own use, 0 at first: what it last wrote here for this stack of this thread. */
struct ms_native_note {
    uint32_t node, site;
};

struct ms_native_stack {
    /* Return addresses, innermost first, without libmemshim's own on top; in the thread's own
     * memory, valid until its next capture. For an instruction that a signal interrupted, the
     * address plus one, so that minus one always gives an address inside the instruction under
     * way. */
    const uint64_t *addresses;
    uint32_t count;
    bool cut;            /* there are more frames than `depth` */
    bool lost;           /* ended at code without unwind tables, or at words that are no stack */
    uint64_t hash;       /* of addresses[0 .. count), for use in a table */
    uint64_t generation; /* how often libraries have been unloaded: under another generation an
                            address may have been other code */
    struct ms_native_note *note; /* null if the stack is not a known one */
};

/* Loads libunwind, invisible to the program. To be called once, when the device is first used and
 * no lock is held for which a library's constructor could wait. Without libunwind only the shim's
 * own reader of unwind tables serves. */
void ms_native_prepare(void);

/* depth: 1 to MS_STACK_DEPTH_MAX. Tolerates signals: a handler that allocates gets its own stack,
 * or an empty one, never a damaged one (the guard keeps it out while an earlier stack of the thread
 * is in use). Reads only the thread's own stack. Keeps errno. The first capture of new code may
 * take some microseconds, and the short locks of libunwind and the loader; later ones take none. */
void ms_native_capture(uint32_t depth, struct ms_native_stack *out);

/* The same from the frame `from` on, which is a caller of this function on the calling thread. If
 * null, or with sp 0: from this function's caller on. */
void ms_native_capture_from(const struct ms_step_at *from, uint32_t depth,
                            struct ms_native_stack *out);

/* The note of a stack that came before, from the frame `from` on (sp 0: unknown); null if it is not
 * known, or longer than `depth`. generation: as in struct ms_native_stack. */
struct ms_native_note *ms_native_recall(const struct ms_step_at *from, uint32_t depth,
                                        uint64_t *generation);

/* The stack of the note that was just recalled. */
void ms_native_recalled(struct ms_native_note *note, uint64_t generation,
                        struct ms_native_stack *out);

/* The file of the code at an address. False: none (made at run time). `path` (path_bytes long;
 * PATH_MAX for names that are not absolute yet) gets its absolute path. Not on the hot path; takes
 * a lock. generation: differs if the same file was loaded anew. */
struct ms_native_module {
    uint64_t base, bytes, generation;
    uint32_t build_id_bytes;
    uint8_t build_id[MS_BUILD_ID_BYTES];
};
bool ms_native_module(uint64_t address, struct ms_native_module *out, char *path,
                      uint32_t path_bytes);

/* The reason why stacks, or some of them, cannot be walked to the end here; null if there is
 * none. */
const char *ms_native_refusal(void);

#endif
