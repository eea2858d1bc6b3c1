/* SPDX-License-Identifier: Apache-2.0 */
/* The road of python_road.py. It is a loop in C, so that callgrind counts no interpreter between
 * its beginning and its end. */
#define MEMSHIM_WEAK
#include "memshim.h"
#include "roads.h"

#define BYTES  ((size_t)96 << 10)
#define RANGES 64u

__attribute__((visibility("default"))) void walk_python(uintptr_t block);

static uintptr_t place;

/* A part of the block is born and dies, as a framework's allocator tells it. */
ROAD(python)
{
    const void *at = (const void *)(place + i % RANGES * BYTES);
    memshim_range_born(0, at, BYTES);
    memshim_range_died(0, at, BYTES);
}

/* block: of RANGES * BYTES */
void walk_python(uintptr_t block)
{
    place = block;
    say_world();
    WALK(python);
    (void)fflush(stdout);
}
