/* SPDX-License-Identifier: Apache-2.0 */
/* Walks that are compared with libunwind's, frame by frame. */
#include "native_walks.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define MOST 512

_Atomic uint64_t checks, not_equal;
uint64_t enough;
struct ms_native_stack last;
uint64_t kept_addresses[MS_STACK_DEPTH_MAX];

static int (*reference)(void **, int); /* unw_backtrace */

void begin(void)
{
    void *library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
    cr_assert(library != NULL, "libunwind.so.8 is needed");
    *(void **)&reference = dlsym(library, "unw_backtrace");
    ms_native_prepare();
    cr_assert(ms_native_refusal() == NULL);
}

uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void print_difference(const struct ms_native_stack *stack, void **expected, int count)
{
    for (int i = 0; i < count || i < (int)stack->count; i++) {
        (void)fprintf(stderr, "%3d %16lx %16lx\n", i,
                      i < (int)stack->count ? stack->addresses[i] : 0,
                      i < count ? (uint64_t)expected[i] : 0);
    }
}

/* Both walks begin in this function, at different calls: all but its own frame must be equal. */
__attribute__((noinline)) void compare_from(const struct ms_step_at *call, int left_out,
                                            uint32_t depth)
{
    static _Thread_local void *frames[MOST];
    struct ms_native_stack stack;
    ms_native_capture_from(call, depth, &stack);
    int count = reference(frames, MOST) - left_out;
    void **expected = frames + left_out;
    bool cut = count > (int)depth;
    bool equal = stack.count == (cut ? depth : (uint32_t)count) && stack.cut == cut && !stack.lost;
    for (uint32_t i = left_out > 0 ? 0 : 1; equal && i < stack.count; i++) {
        equal = stack.addresses[i] == (uint64_t)expected[i];
    }
    if (!equal && not_equal++ == 0) {
        print_difference(&stack, expected, count);
    }
    checks++;
}

void compare(uint32_t depth)
{
    compare_from(NULL, 0, depth);
}

const frame_t shapes[SHAPE_COUNT] = {
#define SHAPES(flags)                                                                          \
    native_plain_##flags, native_alloca_##flags, native_aligned_##flags, native_large_##flags, \
        native_saving_##flags,
    SHAPES(o0) SHAPES(o2) SHAPES(o2_pointers) SHAPES(os)};

/* Few shapes near the root and sizes that repeat make stacks that differ in one place only. */
uint64_t wander(struct road *road)
{
    uint64_t sum = 0, calls = next_random(&road->random) % 4;
    if (road->depth == 0) {
        calls = 200;
    }
    for (uint64_t i = 0; i < calls && road->depth < 24 && checks < enough; i++) {
        if (next_random(&road->random) % 2 == 0) {
            compare(next_random(&road->random) % 8 == 0 ? 7 : DEPTH);
        }
        uint64_t random = next_random(&road->random);
        frame_t shape = shapes[random % (road->depth < 6 ? 6 : SHAPE_COUNT)];
        road->depth++;
        if (random % 5 == 0) {
            road->random &= ~UINT64_C(0x3f0) | 1; /* the same sizes more often */
        }
        sum += shape(road);
        road->depth--;
    }
    compare(DEPTH);
    return sum + 1;
}

void wander_for(uint64_t seed, uint64_t times)
{
    struct road road = {wander, seed, 0};
    enough = checks + times;
    while (checks < enough) {
        (void)wander(&road);
    }
    cr_assert_eq(not_equal, 0, "%lu of %lu stacks differ", not_equal, checks);
}

__attribute__((noinline)) void look(void)
{
    ms_native_capture(DEPTH, &last);
    memcpy(kept_addresses, last.addresses, last.count * sizeof(kept_addresses[0]));
}

struct ms_native_note *note_of_last(void)
{
    struct ms_native_stack stack;
    ms_native_capture(DEPTH, &stack);
    return stack.note;
}
