/* SPDX-License-Identifier: Apache-2.0 */
/* libunwind, loaded invisibly. If it were linked, or in the global scope, its _Unwind_* functions
 * would replace libgcc's, and break C++ exceptions. */
#ifndef MEMSHIM_SHIM_SITES_NATIVE_UNWIND_LIBRARY_H
#define MEMSHIM_SHIM_SITES_NATIVE_UNWIND_LIBRARY_H

#include <stdbool.h>
#include <stdint.h>

/* Calls dlopen once; later calls only return the result. */
bool ms_unwind_library_open(void);

/* Whether an earlier call succeeded. */
bool ms_unwind_library_is_open(void);

/* A walk of the calling thread's whole stack, from this function's caller on. */
struct ms_unwind_walk {
    uint64_t *addresses; /* as in struct ms_native_stack; room for `most` */
    uint32_t most, count;
    bool ended; /* reached the outermost frame */
};
void ms_unwind_library_walk(struct ms_unwind_walk *walk);

/* A frame of the calling thread: its address as above (0: none), the stack pointer, and the frame
 * pointer's register. */
struct ms_unwind_frame {
    uint64_t address, sp, bp;
};

/* Steps from that frame to the one that it returns to. False: the frame was not found, or has no
 * next one. */
bool ms_unwind_library_step(struct ms_unwind_frame *frame);

#endif
