/* SPDX-License-Identifier: Apache-2.0 */
/* libunwind, loaded out of everybody's sight: as a library that is linked, or in the global scope,
 * its _Unwind_* functions would take the place of libgcc's, and C++ exceptions break. */
#ifndef MEMSHIM_SHIM_SITES_UNWIND_LIBRARY_H
#define MEMSHIM_SHIM_SITES_UNWIND_LIBRARY_H

#include <stdbool.h>
#include <stdint.h>

/* Once; later calls only answer. Calls dlopen. */
bool ms_unwind_library_open(void);

/* How far it came before. */
bool ms_unwind_library_is_open(void);

/* A walk of the calling thread's whole stack, from the caller of this on. */
struct ms_unwind_walk {
    uint64_t *addresses; /* as struct ms_native_stack has them; room for `most` */
    uint32_t most, count;
    bool ended; /* came to the outermost frame */
};
void ms_unwind_library_walk(struct ms_unwind_walk *walk);

/* Where a frame of the calling thread is: the address as above (0: there is none), the stack
 * pointer, and the frame pointer's register. */
struct ms_unwind_frame {
    uint64_t address, sp, bp;
};

/* From that frame to the one that it returns to. False: not found, or not stepped. */
bool ms_unwind_library_step(struct ms_unwind_frame *frame);

#endif
