/* SPDX-License-Identifier: Apache-2.0 */
/* A library that comes and goes; two of these differ in the size of their frames only. */
#include <stdint.h>

uint64_t plug(void (*look)(void));
extern void *plug_returns_to;
void *plug_returns_to;

uint64_t plug(void (*look)(void))
{
    volatile char room[ROOM];
    room[0] = 1;
    plug_returns_to = __builtin_return_address(0);
    look();
    return (uint64_t)room[0];
}
