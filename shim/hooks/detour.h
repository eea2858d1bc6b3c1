/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and memsets of the pool's memory in a context of another device.
 *
 * The driver accepts memory of cuMemAlloc in a context of any device ("a memory copy will succeed
 * even if it is issued to a stream that is not associated to the current device", CUDA C++
 * Programming Guide, Stream and Event Behavior). It refuses mapped memory to which the current
 * device has no access. So a refused call is made again: with access for all devices in use, if
 * they can give it to each other; otherwise in a context of the memory's device. A call that names
 * a stream is then made on a stream of that device, between what is on the named one before and
 * after. A call on a default stream waits for what was queued there before, and is waited for. */
#ifndef MEMSHIM_SHIM_HOOKS_DETOUR_H
#define MEMSHIM_SHIM_HOOKS_DETOUR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/device/stream.h"

/* State of one call; all zero before it. */
struct ms_detour {
    enum { MS_DETOUR_NONE, MS_DETOUR_ACCESS, MS_DETOUR_CONTEXT } taken;
    bool guarded, entered;
    struct ms_scope scope;
    CUstream branch;   /* a stream of the memory's device; null: none */
    ms_stream_t named; /* the program's, if there is a branch */
};

/* The driver refused the call (CUDA_ERROR_INVALID_VALUE); some of `values` may be addresses.
 * stream: its stream argument, which may change for the next try; null: it has none. True: make it
 * again. The caller holds no lock and is outside the gate. */
bool ms_detour_again(struct ms_detour *detour, const uint64_t *values, size_t count,
                     CUstream *stream);

/* Makes a refused call again as often as `again`, which is ms_detour_again of `detour`, finds
 * another way. */
#define MS_BY_DETOUR(result, again, call)                                \
    do {                                                                 \
        if (__builtin_expect((result) == CUDA_ERROR_INVALID_VALUE, 0)) { \
            struct ms_detour detour = {.guarded = false};                \
            while ((result) == CUDA_ERROR_INVALID_VALUE && (again)) {    \
                (result) = (call);                                       \
            }                                                            \
            (result) = ms_detour_end(&detour, (result));                 \
        }                                                                \
    } while (0)

/* Called with the last result. Returns the result for the program. */
CUresult ms_detour_end(struct ms_detour *detour, CUresult result);

#endif
