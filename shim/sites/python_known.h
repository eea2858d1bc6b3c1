/* SPDX-License-Identifier: Apache-2.0 */
/* Python stacks of a thread that came before, known again without making frames of them.
 *
 * What a walk makes a frame of are a few words of the interpreter's frame and of its code object. A
 * known frame is where they lie, what they held, and the known frame that called it. Where the
 * words of a known frame, and of all further out, hold what they held, the stack from there on is
 * the one that it was, whatever happened in between. Comparing them takes less than half of what
 * reading, interning and comparing frames does. Stacks that have their outer frames in common share
 * them. */
#ifndef MEMSHIM_SHIM_SITES_PYTHON_KNOWN_H
#define MEMSHIM_SHIM_SITES_PYTHON_KNOWN_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/tables/python_layout.h"

#define MS_PYTHON_KNOWN_FRAMES 4096u /* of a thread */
#define MS_PYTHON_KNOWN_CHAINS 1024u
#define MS_PYTHON_KNOWN_TRIES  8u /* of stacks with one innermost frame */

struct ms_python_known_frame {
    uint64_t at; /* its address; 0: behind the outermost one */
    uint64_t code, instruction;
    uint64_t table, file, function, body; /* of its code object; not read of one of C's */
    uint32_t first_line;                  /* likewise */
    uint8_t entry;
    uint32_t node;  /* of the stack that it is the innermost frame of; 0: of none that is known */
    uint32_t count; /* then: of that stack's frames */
    uint64_t hash;  /* likewise */
    const struct ms_python_known_frame *caller;
    struct ms_python_known_frame *next; /* in its chain */
};

/* Those of a thread. All zero: none. */
struct ms_python_known {
    uint32_t used; /* the first of the frames is the one behind all others */
    struct ms_python_known_frame *chains[MS_PYTHON_KNOWN_CHAINS];
    struct ms_python_known_frame frames[MS_PYTHON_KNOWN_FRAMES];
};

/* In both, `frame` is the innermost one of the calling thread, whose chain of frames can be read
 * with plain loads and stands still; it is not a chain of objects (MS_PYTHON_OBJECTS). */

/* The known frame that stands for the whole stack; null: it is not known. */
const struct ms_python_known_frame *ms_python_known_find(const struct ms_python_known *known,
                                                         const struct ms_python_layout *layout,
                                                         uint64_t frame);

/* From now on it is known; `count` and `hash` are given back. Once there is no more room all are
 * forgotten first. */
void ms_python_known_remember(struct ms_python_known *known, const struct ms_python_layout *layout,
                              uint64_t frame, uint32_t node, uint32_t count, uint64_t hash);

#endif
