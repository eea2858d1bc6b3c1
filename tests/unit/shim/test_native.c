/* SPDX-License-Identifier: Apache-2.0 */
/* Native stacks, frame by frame against libunwind's own walk or against what a function knows of
 * itself. Each test is a process of its own. */
#include <alloca.h>
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "native_frames.h"
#include "shim/sites/native/native.h"

#define DEPTH 64u
#define MOST  512

uint64_t native_exception(frame_t look, struct road *road, int depth);

static int (*reference)(void **, int); /* unw_backtrace */
static _Atomic uint64_t checks, not_equal, took;
static uint64_t enough; /* checks */

static void begin(void)
{
    void *library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
    cr_assert(library != NULL, "libunwind.so.8 is needed");
    *(void **)&reference = dlsym(library, "unw_backtrace");
    ms_native_prepare();
    cr_assert(ms_native_refusal() == NULL);
}

static uint64_t next_random(uint64_t *state)
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

/* Both walks begin in this function, at different calls: all but its own frame must be equal. Or
 * the first begins at `call`, which so many frames further in are not part of. */
static __attribute__((noinline)) void compare_from(const struct ms_step_at *call, int left_out,
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

static void compare(uint32_t depth)
{
    compare_from(NULL, 0, depth);
}

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

static const frame_t shapes[] = {
#define SHAPES(flags)                                                                          \
    native_plain_##flags, native_alloca_##flags, native_aligned_##flags, native_large_##flags, \
        native_saving_##flags,
    SHAPES(o0) SHAPES(o2) SHAPES(o2_pointers) SHAPES(os)};

/* A walk over a random tree of calls: each node looks some times and calls some others. Few shapes
 * near the root and sizes that repeat make stacks that differ in one place only. */
static uint64_t wander(struct road *road)
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
        frame_t shape = shapes[random % (road->depth < 6 ? 6 : sizeof(shapes) / sizeof(shapes[0]))];
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

static void wander_for(uint64_t seed, uint64_t times)
{
    struct road road = {wander, seed, 0};
    enough = checks + times;
    while (checks < enough) {
        (void)wander(&road);
    }
    cr_assert_eq(not_equal, 0, "%lu of %lu stacks differ", not_equal, checks);
}

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
        (void)shapes[i % (sizeof(shapes) / sizeof(shapes[0]))](&road);
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

static struct ms_native_note *note_of_last(void)
{
    struct ms_native_stack stack;
    ms_native_capture(DEPTH, &stack);
    return stack.note;
}

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

static struct ms_native_stack last;
static uint64_t kept_addresses[MS_STACK_DEPTH_MAX];

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

/* --- Signals ---------------------------------------------------------------------------------- */

static volatile sig_atomic_t handled;
static char other_stack[65536];

static __attribute__((noinline)) void capture_in_handler(int number)
{
    (void)number;
    ms_native_capture(DEPTH, &last);
    memcpy(kept_addresses, last.addresses, last.count * sizeof(kept_addresses[0]));
    handled++;
}

static void handle(int number, int flags, void (*handler)(int))
{
    const stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof(other_stack)};
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    cr_assert(sigaltstack(&stack, NULL) == 0);
    cr_assert(sigaction(number, &action, NULL) == 0);
}

/* The instruction after which `raise` is no more: ud2, whose address the function knows. */
static __attribute__((noinline)) void interrupted(void)
{
    __asm__ volatile("interrupted_here: ud2");
}
extern const char interrupted_here[];

static void skip_instruction(int number, siginfo_t *info, void *context)
{
    (void)info;
    capture_in_handler(number);
#if defined(__x86_64__)
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
#endif
}

static bool holds(uint64_t address)
{
    for (uint32_t i = 0; i < last.count; i++) {
        if (kept_addresses[i] == address) {
            return true;
        }
    }
    return false;
}

static void check_signal(int flags)
{
    struct ms_native_stack before;
    const stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof(other_stack)};
    struct sigaction action = {.sa_sigaction = skip_instruction, .sa_flags = flags | SA_SIGINFO};
    cr_assert(sigaltstack(&stack, NULL) == 0 && sigaction(SIGILL, &action, NULL) == 0);
    for (int i = 0; i < 100; i++) {
        ms_native_capture(DEPTH, &before);
        uint32_t frames = before.count;
        interrupted();
        cr_assert(!last.lost && !last.cut);
        /* the handlers, the kernel's frame, the interrupted function, then as before */
        cr_assert_eq(last.count, frames + 4);
        cr_assert(holds((uint64_t)interrupted_here + 1));
    }
    cr_assert_eq(handled, 100);
}

#if defined(__x86_64__)
Test(native, walks_out_of_a_handler)
{
    begin();
    check_signal(0);
}

Test(native, walks_out_of_a_handler_on_another_stack)
{
    begin();
    check_signal(SA_ONSTACK);
}
#endif

/* A handler may come at any instruction, those of a capture included. */
static void check_interruptions(int flags)
{
    const struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    struct ms_native_stack stack;
    begin();
    handle(SIGPROF, flags, capture_in_handler);
    cr_assert(setitimer(ITIMER_PROF, &often, NULL) == 0);
    for (uint64_t i = 0; handled < 200; i++) {
        ms_native_capture(DEPTH, &stack);
        cr_assert(stack.count <= DEPTH);
    }
    cr_assert(setitimer(ITIMER_PROF, &never, NULL) == 0);
    wander_for(5, 500);
}

Test(native, survives_handlers_at_any_time)
{
    check_interruptions(0);
}

Test(native, survives_handlers_on_another_stack_at_any_time)
{
    check_interruptions(SA_ONSTACK);
}

/* --- Other stacks ----------------------------------------------------------------------------- */

static char *low_end; /* of a small thread's stack */

static __attribute__((noinline)) uint64_t fill_until(size_t left_bytes)
{
    volatile char room[64];
    room[0] = 1;
    if ((size_t)((char *)__builtin_frame_address(0) - low_end) < left_bytes) {
        ms_native_capture(DEPTH, &last);
        took += last.count;
        return 1;
    }
    return fill_until(left_bytes) + (uint64_t)room[0];
}

static void *near_the_guard(void *unused)
{
    (void)unused;
    (void)fill_until(12000); /* code that was not met before needs more */
    (void)fill_until(2500);
    return NULL;
}

Test(native, needs_little_stack)
{
    const size_t bytes = 65536, page = 4096;
    pthread_attr_t attr;
    pthread_t thread;
    begin();
    low_end = mmap(NULL, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(low_end != MAP_FAILED && mprotect(low_end, page, PROT_NONE) == 0);
    low_end += page;
    pthread_attr_init(&attr);
    cr_assert(pthread_attr_setstack(&attr, low_end, bytes) == 0);
    cr_assert(pthread_create(&thread, &attr, near_the_guard, NULL) == 0);
    pthread_join(thread, NULL);
    cr_assert_eq(took, UINT64_C(2) * DEPTH);
    cr_assert(last.cut);
}

static ucontext_t outside, inside;

static void coroutine(void)
{
    struct road road = {wander, 4711, 20};
    for (int i = 0; i < 200; i++) {
        (void)native_saving_o2_pointers(&road);
        (void)swapcontext(&inside, &outside);
    }
}

Test(native, walks_a_coroutine)
{
    const size_t bytes = 262144, page = 4096;
    struct road road = {wander, 11, 21};
    begin();
    enough = UINT64_MAX;
    char *stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(stack != MAP_FAILED && mprotect(stack, page, PROT_NONE) == 0);
    cr_assert(mprotect(stack + bytes - page, page, PROT_NONE) ==
              0); /* it ends at a guard as well */
    cr_assert(getcontext(&inside) == 0);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = bytes - page;
    makecontext(&inside, coroutine, 0);
    for (int i = 0; i < 200; i++) {
        (void)swapcontext(&outside, &inside);
        (void)native_alloca_o2(&road);
    }
    cr_assert(checks > 400);
    cr_assert_eq(not_equal, 0);
}

/* --- Code without tables, and registers that lie ---------------------------------------------- */

static __attribute__((noinline)) void look(void)
{
    ms_native_capture(DEPTH, &last);
    memcpy(kept_addresses, last.addresses, last.count * sizeof(kept_addresses[0]));
}

#if defined(__x86_64__)
Test(native, ends_at_code_made_at_run_time)
{
    /* sub $8, %rsp; call *%rdi; add $8, %rsp; ret */
    static const uint8_t code[] = {0x48, 0x83, 0xec, 8, 0xff, 0xd7, 0x48, 0x83, 0xc4, 8, 0xc3};
    begin();
    uint8_t *page =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(page != MAP_FAILED);
    memcpy(page, code, sizeof(code));
    for (int i = 0; i < 10; i++) {
        ((void (*)(void (*)(void)))page)(look);
        cr_assert(last.lost && !last.cut);
        cr_assert_eq(last.count, 2);
        cr_assert_eq(kept_addresses[1], (uint64_t)page + 6);
    }
    struct ms_native_module module;
    char path[64];
    cr_assert(!ms_native_module((uint64_t)page, &module, path, sizeof(path)));
}

/* with_bp(function, value): its tables say that its frame is found through rbp, and rbp is that
 * value while it calls the function. with_r12(function): found through r12, which no plain rule
 * knows. */
void with_bp(void (*function)(void), uint64_t value);
void with_r12(void (*function)(void));
__asm__(".pushsection .text\n"
        "with_bp: .cfi_startproc\n"
        "    push %rbp\n"
        "    .cfi_def_cfa_offset 16\n"
        "    .cfi_offset 6, -16\n"
        "    mov %rsp, %rbp\n"
        "    .cfi_def_cfa_register 6\n"
        "    push %rbx\n"
        "    sub $8, %rsp\n"
        "    mov %rbp, %rbx\n"
        "    mov %rsi, %rbp\n"
        "    call *%rdi\n"
        "    mov %rbx, %rbp\n"
        "    add $8, %rsp\n"
        "    pop %rbx\n"
        "    pop %rbp\n"
        "    .cfi_def_cfa 7, 8\n"
        "    ret\n"
        "    .cfi_endproc\n"
        "with_r12: .cfi_startproc\n"
        "    push %r12\n"
        "    .cfi_def_cfa_offset 16\n"
        "    .cfi_offset 12, -16\n"
        "    mov %rsp, %r12\n"
        "    .cfi_def_cfa_register 12\n"
        "    sub $512, %rsp\n"
        "    call *%rdi\n"
        "    mov %r12, %rsp\n"
        "    .cfi_def_cfa_register 7\n"
        "    pop %r12\n"
        "    .cfi_def_cfa_offset 8\n"
        "    ret\n"
        "    .cfi_endproc\n"
        "    .popsection\n");

Test(native, survives_any_frame_pointer)
{
    uint64_t here = (uint64_t)__builtin_frame_address(0), random = 99;
    const uint64_t values[] = {0,        1,         8,        0x1000,     UINT64_MAX,
                               here + 1, here & ~7, here - 8, here - 512, here + (1u << 23)};
    begin();
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        with_bp(look, values[i]);
        cr_assert(last.count >= 2);
        cr_assert(kept_addresses[1] - (uint64_t)with_bp < 64);
    }
    for (int i = 0; i < 5000; i++) { /* near the stack, or anywhere */
        uint64_t value = next_random(&random);
        with_bp(look, i % 2 == 0 ? value : here - 8192 + value % (1u << 18));
        cr_assert(last.count >= 2);
    }
    with_bp(look, 0x4141414141414140);
    cr_assert(last.lost);
    cr_assert_eq(last.count, 2);
    wander_for(3, 500);
}

static void compare_all(void)
{
    compare(DEPTH);
}

Test(native, asks_libunwind_where_tables_are_unusual)
{
    begin();
    for (int i = 0; i < 10; i++) {
        with_r12(compare_all);
        compare_all();
    }
    cr_assert_eq(not_equal, 0);
}

Test(native, walks_without_libunwind)
{
    cr_assert(ms_native_refusal() != NULL, "nothing is prepared in this process");
    look();
    cr_assert(!last.lost);
    cr_assert_gt(last.count, 3);
    with_r12(look);
    cr_assert(last.lost);
}
#endif

/* --- Libraries that come and go --------------------------------------------------------------- */

struct plug {
    void *library;
    uint64_t (*call)(void (*)(void));
    void **returns_to;
};

static struct plug open_plug(const char *variable)
{
    struct plug plug = {dlopen(getenv(variable), RTLD_NOW | RTLD_LOCAL), NULL, NULL};
    cr_assert(plug.library != NULL, "%s: %s", variable, dlerror());
    *(void **)&plug.call = dlsym(plug.library, "plug");
    plug.returns_to = dlsym(plug.library, "plug_returns_to");
    return plug;
}

/* Not by libunwind, whose cache may be behind. */
static void check_plug(const struct plug *plug)
{
    for (int i = 0; i < 3; i++) {
        (void)plug->call(look);
        cr_assert(!last.lost);
        cr_assert_gt(last.count, 3);
        cr_assert(kept_addresses[1] - (uint64_t)plug->call < 256);
        cr_assert_eq(kept_addresses[2], (uint64_t)*plug->returns_to);
    }
}

Test(native, forgets_a_library_that_went)
{
    struct ms_native_module first, second;
    char path[4096];
    int same_place = 0;
    begin();
    for (int i = 0; i < 20; i++) {
        struct plug plug = open_plug("PLUG_A");
        uint64_t code = (uint64_t)plug.call;
        check_plug(&plug);
        uint64_t generation = last.generation;
        cr_assert(ms_native_module(code, &first, path, sizeof(path)));
        cr_assert_str_eq(path, getenv("PLUG_A"));
        cr_assert(dlclose(plug.library) == 0);
        plug = open_plug("PLUG_B");
        check_plug(&plug);
        cr_assert_gt(last.generation, generation);
        cr_assert(ms_native_module((uint64_t)plug.call, &second, path, sizeof(path)));
        cr_assert_str_eq(path, getenv("PLUG_B"));
        cr_assert_neq(second.generation, first.generation);
        same_place += (uint64_t)plug.call == code;
        cr_assert(dlclose(plug.library) == 0);
    }
    cr_assert(same_place > 0, "the loader never put the one where the other was");
}

#if defined(__x86_64__)
Test(native, what_was_noted_of_a_stack_goes_with_a_library)
{
    enum { UNLOADED_AT = 5 };
    begin();
    for (volatile uint32_t i = 0; i < 10; i++) {
        if (i == UNLOADED_AT) {
            struct plug plug = open_plug("PLUG_A");
            check_plug(&plug);
            cr_assert(dlclose(plug.library) == 0);
        }
        struct ms_native_note *note = note_of_last();
        cr_assert(i != UNLOADED_AT - 1 || (note != NULL && note->node == 7));
        cr_assert(i != UNLOADED_AT || note == NULL || note->node == 0);
        if (note != NULL) {
            note->node = 7;
        }
    }
}
#endif

Test(native, keeps_what_it_knows_where_nothing_went)
{
    begin();
    look();
    uint64_t generation = last.generation;
    for (int i = 0; i < 10; i++) {
        void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
        cr_assert(libc != NULL && dlclose(libc) == 0);
    }
    look();
    cr_assert_eq(last.generation, generation);
}

static volatile bool stop;

static void *open_and_close(void *unused)
{
    while (!stop) {
        struct plug plug = open_plug("PLUG_A");
        (void)dlclose(plug.library);
        plug = open_plug("PLUG_B");
        (void)dlclose(plug.library);
    }
    return unused;
}

Test(native, is_right_while_libraries_come_and_go)
{
    pthread_t thread;
    begin();
    cr_assert(pthread_create(&thread, NULL, open_and_close, NULL) == 0);
    wander_for(17, 5000);
    stop = true;
    pthread_join(thread, NULL);
}

Test(native, knows_modules)
{
    struct ms_native_module module;
    char path[4096], real[4096], command[4200], line[256], text[2 * MS_BUILD_ID_BYTES + 1] = "";
    Dl_info info;
    begin();
    cr_assert(dladdr((void *)printf, &info) != 0);
    cr_assert(ms_native_module((uint64_t)printf, &module, path, sizeof(path)));
    cr_assert_eq(module.base, (uint64_t)info.dli_fbase);
    cr_assert(path[0] == '/' && strstr(path, "libc.so") != NULL);
    cr_assert((uint64_t)printf - module.base < module.bytes);
    cr_assert(ms_native_module((uint64_t)begin, &module, path, sizeof(path)));
    cr_assert(realpath("/proc/self/exe", real) != NULL);
    cr_assert_str_eq(path, real);
    for (uint32_t i = 0; i < module.build_id_bytes; i++) {
        (void)snprintf(text + (size_t)2 * i, 3, "%02x", module.build_id[i]);
    }
    (void)snprintf(command, sizeof(command), "readelf -n '%s' | grep 'Build ID'", real);
    FILE *notes = popen(command, "r");
    cr_assert(notes != NULL && fgets(line, sizeof(line), notes) != NULL);
    (void)pclose(notes);
    cr_assert(module.build_id_bytes >= 8);
    cr_assert(strstr(line, text) != NULL, "%s is not in %s", text, line);
    cr_assert(!ms_native_module(16, &module, path, sizeof(path)));
}

/* --- Life ------------------------------------------------------------------------------------- */

static void *capture_once(void *unused)
{
    ms_native_capture(DEPTH, &last);
    return unused;
}

static long mapped_pages(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    cr_assert(file != NULL && fscanf(file, "%ld", &pages) == 1);
    (void)fclose(file);
    return pages;
}

Test(native, threads_that_ended_leave_nothing)
{
    pthread_t thread;
    long before = 0;
    begin();
    for (int i = 0; i < 1020; i++) {
        before = i == 20 ? mapped_pages() : before;
        cr_assert(pthread_create(&thread, NULL, capture_once, NULL) == 0);
        pthread_join(thread, NULL);
    }
    cr_assert_lt(mapped_pages() - before, 256, "1000 threads mapped a mebibyte");
}

Test(native, a_fork_child_is_not_harmed)
{
    begin();
    look();
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        look();
        _exit(last.lost ? 1 : 0);
    }
    int status = -1;
    cr_assert(waitpid(child, &status, 0) == child);
    cr_assert_eq(status, 0);
}

Test(native, leaves_errno_and_the_global_scope)
{
    begin();
    errno = 77;
    look();
    cr_assert_eq(errno, 77);
    cr_assert(dlsym(RTLD_DEFAULT, "unw_backtrace") == NULL);
}

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
