/* SPDX-License-Identifier: Apache-2.0 */
/* Native stacks, frame by frame against libunwind's own walk or against what a function knows of
 * itself. Each test is a process of its own. */
#include <alloca.h>
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "native_walks.h"

uint64_t native_exception(frame_t look, struct road *road, int depth);

#if defined(__x86_64__)
/* Called by a frame of any shape; what is known of it is what this one's own frame tells. */
static __attribute__((noinline)) uint64_t compare_from_caller(struct road *road)
{
    const struct ms_step_at call = {(uintptr_t)__builtin_return_address(0),
                                    (uintptr_t)__builtin_dwarf_cfa(),
                                    *(const uintptr_t *)__builtin_frame_address(0)};
    compare_from(&call, 2, road->random % 8 == 0 ? 7 : DEPTH);
    return 1;
}
#endif

/* --- Stacks of all shapes, changed and unchanged in random order ------------------------------ */

Test(native, equals_a_walk_by_libunwind)
{
    begin();
    wander_for(0x1234567, 200000);
}

#if defined(__x86_64__)
Test(native, begins_at_a_caller_of_any_shape)
{
    begin();
    for (uint64_t i = 0; i < 5000; i++) {
        struct road road = {compare_from_caller, i / 4 * 977, 0};
        (void)shapes[i % SHAPE_COUNT](&road);
    }
    cr_assert_eq(not_equal, 0, "%lu of %lu stacks differ", not_equal, checks);
}
#endif

Test(native, equals_it_from_another_seed)
{
    begin();
    wander_for(0x7777777777, 200000);
}

static void *wander_in_thread(void *seed)
{
    struct road road = {wander, (uint64_t)(uintptr_t)seed, 0};
    (void)wander(&road);
    return NULL;
}

Test(native, equals_it_in_threads)
{
    pthread_t threads[4];
    begin();
    enough = 100000;
    for (size_t i = 0; i < 4; i++) {
        cr_assert(pthread_create(&threads[i], NULL, wander_in_thread, (void *)(i + 99)) == 0);
    }
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    cr_assert_eq(not_equal, 0);
    cr_assert_geq(checks, enough);
}

/* --- A word that changes far out, alone ------------------------------------------------------- */

/* Two calls at one depth that only differ in where they return to. */
static __attribute__((noinline)) uint64_t one_of_two(struct road *road, bool first)
{
    if (first) {
        return native_saving_o2(road) + 1;
    }
    return native_saving_o2(road) + 2;
}

static uint64_t look_there(struct road *road)
{
    compare(DEPTH);
    return road->random;
}

static uint64_t deeper(struct road *road)
{
    road->next = look_there;
    uint64_t sum = native_plain_o2(road);
    road->next = deeper;
    return sum + 1;
}

Test(native, sees_one_return_address_far_out_change)
{
    begin();
    struct road road = {deeper, 1, 0};
    for (int i = 0; i < 1000; i++) {
        (void)one_of_two(&road, next_random(&road.random) % 2 == 0);
    }
    cr_assert_eq(not_equal, 0);
}

/* All frames further in lie where they lay, and the old return addresses are still in the unused
 * room: only a saved frame pointer tells that the frames between moved. */
static __attribute__((noinline)) uint64_t with_room(struct road *road, size_t bytes)
{
    volatile char *room = alloca(bytes);
    room[0] = 1;
    return native_saving_o2(road) + (uint64_t)room[0];
}

static __attribute__((noinline)) uint64_t moved_by(struct road *road, size_t bytes)
{
    volatile char *room = alloca(bytes);
    room[0] = 1;
    if (bytes % 32 == 0) {
        return with_room(road, 2048 - bytes) + (uint64_t)room[0];
    }
    uint64_t sum = with_room(road, 2048 - bytes);
    __asm__ volatile("nop"); /* else it would be the same call */
    return sum + (uint64_t)room[0];
}

Test(native, sees_frames_move_under_the_same_words)
{
    begin();
    struct road road = {look_there, 1, 0};
    for (volatile int round = 0; round < 4; round++) { /* stacks are known once they came twice */
        for (volatile size_t bytes = 16; bytes < 2000; bytes += 16) {
            (void)moved_by(&road, bytes);
        }
    }
    cr_assert_eq(not_equal, 0);
}

/* --- Known stacks ----------------------------------------------------------------------------- */

static __attribute__((noinline)) struct ms_native_note *note_from_another_place(void)
{
    struct ms_native_note *volatile note = note_of_last();
    return note;
}

#if defined(__x86_64__)
Test(native, a_stack_that_came_before_keeps_its_note)
{
    begin();
    for (volatile uint32_t i = 0; i < 10; i++) {
        struct ms_native_note *note = note_of_last();
        cr_assert(i < 2 || (note != NULL && note->node == (i == 2 ? 0 : 7)));
        if (note != NULL) {
            note->node = 7;
        }
    }
    for (volatile uint32_t i = 0; i < 10; i++) {
        struct ms_native_note *note = note_from_another_place();
        cr_assert(note == NULL || note->node == 0, "it is another stack's");
    }
}
#endif

/* --- Depth and hash --------------------------------------------------------------------------- */

static __attribute__((noinline)) uint64_t recurse(int left, uint32_t depth)
{
    if (left == 0) {
        ms_native_capture(depth, &last);
        memcpy(kept_addresses, last.addresses, last.count * sizeof(kept_addresses[0]));
        compare(depth);
        return 1;
    }
    volatile uint64_t below = recurse(left - 1, depth);
    return below + 1;
}

Test(native, cuts_at_the_depth)
{
    begin();
    for (int deep = 0; deep < 320; deep += 7) {
        (void)recurse(deep, 16);
        (void)recurse(deep, MS_STACK_DEPTH_MAX);
        (void)recurse(deep, 1);
    }
    cr_assert_eq(not_equal, 0);
}

/* Over and over: those that came first are given up for them in the end. */
Test(native, more_stacks_than_can_be_known)
{
    begin();
    for (volatile int round = 0; round < 50; round++) {
        for (volatile int deep = 0; deep < 220; deep++) {
            (void)recurse(deep, MS_STACK_DEPTH_MAX);
            (void)recurse(deep, MS_STACK_DEPTH_MAX - 1); /* it returns elsewhere */
        }
    }
    cr_assert_eq(not_equal, 0);
}

Test(native, equal_stacks_have_equal_hashes)
{
    begin();
    (void)recurse(100, 16);
    struct ms_native_stack first = last;
    (void)recurse(119, 16);
    cr_assert(last.cut && first.cut);
    cr_assert_eq(last.hash, first.hash, "both are 16 frames of one function");
    uint64_t hashes[3];
    const volatile int deep[3] = {10, 40, 10}, times = 3; /* one call, not three unrolled ones */
    for (int i = 0; i < times; i++) {
        (void)recurse(deep[i], 64);
        hashes[i] = last.hash;
    }
    cr_assert_neq(hashes[1], hashes[0]);
    cr_assert_eq(hashes[2], hashes[0]);
}

/* --- Exceptions ------------------------------------------------------------------------------- */

Test(native, exceptions_go_on)
{
    struct road road = {look_there, 1, 0};
    begin();
    for (int i = 0; i < 100; i++) {
        cr_assert_eq(native_exception(look_there, &road, i % 20), 1001);
    }
    cr_assert_eq(checks, 200);
    cr_assert_eq(not_equal, 0);
}
