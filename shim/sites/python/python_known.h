/* SPDX-License-Identifier: Apache-2.0 */
/* Python stacks that a thread remembers, so that they need not be read again.
 *
 * A walk reads a few words of each interpreter frame and of its code object. A known frame keeps
 * the addresses and values of these words, and the known frame of its caller. If the words of a
 * known frame and of all its callers have not changed, the thread has the same stack as before.
 * Comparing takes less than half the time of reading the frames and looking them up. Stacks share
 * the frames that they have in common. */
#ifndef MEMSHIM_SHIM_SITES_PYTHON_PYTHON_KNOWN_H
#define MEMSHIM_SHIM_SITES_PYTHON_PYTHON_KNOWN_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/tables/python_layout.h"

#define MS_PYTHON_KNOWN_FRAMES 4096u /* of a thread */
#define MS_PYTHON_KNOWN_CHAINS 1024u
#define MS_PYTHON_KNOWN_TRIES  8u /* frames compared in one search */

struct ms_python_known_frame {
    uint64_t at; /* its address; 0: the end, behind the outermost frame */
    uint64_t code, instruction;
    uint64_t table, file, function, body; /* of its code object; 0 in a frame of C's */
    uint32_t first_line;                  /* likewise */
    uint8_t entry;
    uint32_t node;  /* of the remembered stack that begins with this frame; 0: none does */
    uint32_t count; /* the number of that stack's frames */
    uint64_t hash;  /* the hash of that stack */
    const struct ms_python_known_frame *caller;
    struct ms_python_known_frame *next; /* in its chain */
};

/* All known frames of a thread. All zero: none. */
struct ms_python_known {
    uint32_t used; /* of frames; frames[0] is the end of every stack */
    struct ms_python_known_frame *chains[MS_PYTHON_KNOWN_CHAINS];
    struct ms_python_known_frame frames[MS_PYTHON_KNOWN_FRAMES];
};

/* For both functions: `frame` is the innermost frame of the calling thread. The chain of its frames
 * can be read with plain loads and does not change meanwhile. The layout is not MS_PYTHON_OBJECTS.
 */

/* The innermost known frame of the thread's stack; null if the stack is not remembered. */
const struct ms_python_known_frame *ms_python_known_find(const struct ms_python_known *known,
                                                         const struct ms_python_layout *layout,
                                                         uint64_t frame);

/* Remembers the thread's stack with its node, count and hash. If there is no room, all others are
 * forgotten first. */
void ms_python_known_remember(struct ms_python_known *known, const struct ms_python_layout *layout,
                              uint64_t frame, uint32_t node, uint32_t count, uint64_t hash);

#endif
