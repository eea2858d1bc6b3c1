/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and memsets of the pool's memory in a context of another device.
 *
 * The driver finds memory of cuMemAlloc from a context of any device ("a memory copy will succeed
 * even if it is issued to a stream that is not associated to the current device", CUDA C++
 * Programming Guide, Stream and Event Behavior), and refuses it for mapped memory to which the
 * current device has no access. So what it refused is called once more: with access, where the
 * devices can give it to each other; else in a context of the memory's device, after what was
 * queued here and before the program goes on, which serves calls that name no stream. */
#ifndef MEMSHIM_SHIM_HOOKS_DETOUR_H
#define MEMSHIM_SHIM_HOOKS_DETOUR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/device/context.h"

/* Of one call; all zero before it. */
struct ms_detour {
    enum { MS_DETOUR_NONE, MS_DETOUR_ACCESS, MS_DETOUR_CONTEXT } taken;
    bool guarded, entered;
    struct ms_scope scope;
};

/* The driver refused the call (CUDA_ERROR_INVALID_VALUE), some of whose values may be addresses.
 * True: it is to be made again. No lock is held and the gate is not passed. */
bool ms_detour_again(struct ms_detour *detour, const uint64_t *values, size_t count);

/* Makes a call that the driver refused again, as often as `again` finds a way, which is
 * ms_detour_again of `detour`. */
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

/* The call was made as often as it was to be; with which result it ended. That for the program. */
CUresult ms_detour_end(struct ms_detour *detour, CUresult result);

#endif
