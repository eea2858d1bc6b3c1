/* SPDX-License-Identifier: Apache-2.0 */
/* Native stacks that plain calls do not make: out of signal handlers, at the end of a stack and on
 * others, in code without tables. Each test is a process of its own. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

#include "native_walks.h"

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
Test(native_unusual, walks_out_of_a_handler)
{
    begin();
    check_signal(0);
}

Test(native_unusual, walks_out_of_a_handler_on_another_stack)
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

Test(native_unusual, survives_handlers_at_any_time)
{
    check_interruptions(0);
}

Test(native_unusual, survives_handlers_on_another_stack_at_any_time)
{
    check_interruptions(SA_ONSTACK);
}

/* --- Other stacks ----------------------------------------------------------------------------- */

static _Atomic uint64_t took;
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

Test(native_unusual, needs_little_stack)
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

Test(native_unusual, walks_a_coroutine)
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

#if defined(__x86_64__)
Test(native_unusual, ends_at_code_made_at_run_time)
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

Test(native_unusual, survives_any_frame_pointer)
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

Test(native_unusual, asks_libunwind_where_tables_are_unusual)
{
    begin();
    for (int i = 0; i < 10; i++) {
        with_r12(compare_all);
        compare_all();
    }
    cr_assert_eq(not_equal, 0);
}

Test(native_unusual, walks_without_libunwind)
{
    cr_assert(ms_native_refusal() != NULL, "nothing is prepared in this process");
    look();
    cr_assert(!last.lost);
    cr_assert_gt(last.count, 3);
    with_r12(look);
    cr_assert(last.lost);
}
#endif
