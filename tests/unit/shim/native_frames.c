/* SPDX-License-Identifier: Apache-2.0 */
/* Functions whose frames look different, compiled with different flags. See native_frames.h. */
#include "native_frames.h"

#include <alloca.h>
#include <stdalign.h>

#define JOINED_OF(name, flags) name##_##flags
#define JOINED(name, flags)    JOINED_OF(name, flags)
#define FRAME(name)            JOINED(native_##name, FLAGS)

uint64_t FRAME(plain)(struct road *road)
{
    return road->next(road) + 1;
}

uint64_t FRAME(alloca)(struct road *road)
{
    volatile char *room = alloca(16 + road->random % 700);
    room[0] = 1;
    return road->next(road) + (uint64_t)room[0];
}

/* The stack is realigned, so the frame's end is kept in memory. */
uint64_t FRAME(aligned)(struct road *road)
{
    alignas(64) volatile char room[128];
    volatile char *more = alloca(16 + road->random % 300);
    room[0] = more[0] = 1;
    return road->next(road) + (uint64_t)room[0] + (uint64_t)more[0];
}

uint64_t FRAME(large)(struct road *road)
{
    volatile char room[5000];
    room[road->random % sizeof(room)] = 1;
    return road->next(road) + 1;
}

/* Many values that outlive the call: callee-saved registers, rbp among them, are saved. */
uint64_t FRAME(saving)(struct road *road)
{
    uint64_t a = road->random * 3, b = a ^ road->random >> 7, c = b * 5, d = c ^ a >> 3, e = d * 7,
             f = e ^ b;
    uint64_t first = road->next(road);
    return first + (a ^ b) + (c ^ d) + (e ^ f);
}
