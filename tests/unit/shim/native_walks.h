/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of native stacks share: walks that are compared with libunwind's. */
#ifndef MEMSHIM_TESTS_NATIVE_WALKS_H
#define MEMSHIM_TESTS_NATIVE_WALKS_H

#include <stddef.h>
#include <stdint.h>

#include "native_frames.h"
#include "shim/sites/native/native.h"

#define DEPTH 64u

extern _Atomic uint64_t checks, not_equal; /* stacks that were compared */
extern uint64_t enough;                    /* checks after which a walk ends */

/* Prepares both kinds of walk. */
void begin(void);

uint64_t next_random(uint64_t *state);

/* Compares the stack here with libunwind's, cut at the depth. */
void compare(uint32_t depth);

/* The same of a stack that begins at `call`, which so many frames further in are not part of. */
void compare_from(const struct ms_step_at *call, int left_out, uint32_t depth);

/* Functions with frames of all shapes. */
#define SHAPE_COUNT 20u
extern const frame_t shapes[SHAPE_COUNT];

/* A walk over a random tree of calls: each node looks some times and calls some others. */
uint64_t wander(struct road *road);

/* So many comparisons; none may differ. */
void wander_for(uint64_t seed, uint64_t times);

/* The stack that was captured last, by `look` or by a test. */
extern struct ms_native_stack last;
extern uint64_t kept_addresses[MS_STACK_DEPTH_MAX];
void look(void);

/* Of the stack here; null: it is not known yet. */
struct ms_native_note *note_of_last(void);

#endif
