/* SPDX-License-Identifier: Apache-2.0 */
/* What is refused, and stacks that are not as they should be. Real interpreters:
 * tests/process/call_sites/test_python_frames.py. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fake_python.h"
#include "report/trace/definitions.h"
#include "shim/sites/native/native.h"
#include "shim/sites/python/python.h"
#include "shim/sites/python/python_interpreter.h"

#define WORDS 32

/* Offsets in 3.12, in words, as its headers have them. */
enum { THREAD_CFRAME = 7, FRAME_CODE = 0, FRAME_PREVIOUS = 1, FRAME_INSTRUCTION = 7 };
enum { FRAME_OWNER_BYTE = 70, OWNED_BY_CSTACK = 3, LATE_CAPTURES = 256 };
enum { CODE_TYPE = 1, CODE_UNITS = 2, CODE_LINE_BYTE = 68, CODE_FILE = 14, CODE_FUNCTION = 16 };
enum { CODE_TABLE = 17, CODE_BEGIN_BYTE = 192, CAPTURES_TILL_TRUSTED = 64 };

static struct fake_python *fake;
static uint64_t thread[WORDS], cframe[WORDS], frames[4][WORDS], codes[4][WORDS];

static void load(const char *version)
{
    void *library = dlopen(getenv("FAKE_PYTHON"), RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(library, "%s", dlerror());
    fake_python_t *get;
    *(void **)&get = dlsym(library, "fake_python");
    fake = get();
    fake->version = version;
}

static uint64_t address(const void *of)
{
    return (uint64_t)of;
}

/* frames[0], the innermost, to frames[count - 1], each in a function of its own. */
static void make_stack(int count)
{
    thread[THREAD_CFRAME] = address(cframe);
    cframe[0] = address(frames[0]);
    for (int i = 0; i < count; i++) {
        uint32_t line = 100 + (uint32_t)i;
        memcpy((char *)codes[i] + CODE_LINE_BYTE, &line, sizeof(line));
        codes[i][CODE_TYPE] = address(fake->code_type);
        codes[i][CODE_UNITS] = 50;
        codes[i][CODE_FILE] = 0x1000 + (uint64_t)i * 8;
        codes[i][CODE_FUNCTION] = 0x2000;
        codes[i][CODE_TABLE] = 0x3000;
        frames[i][FRAME_CODE] = address(codes[i]);
        frames[i][FRAME_PREVIOUS] = i + 1 < count ? address(frames[i + 1]) : 0;
        frames[i][FRAME_INSTRUCTION] = address(codes[i]) + CODE_BEGIN_BYTE + 10 + (uint64_t)i * 2;
    }
    fake->thread = thread;
}

static void load_3_12(int count)
{
    load("3.12.9 (main, Jan  1 2026, 00:00:00) [GCC]");
    make_stack(count);
}

static struct ms_python_stack capture(uint32_t depth)
{
    struct ms_python_stack stack;
    ms_python_capture(depth, &stack);
    return stack;
}

/* 0: it was read. */
static uint32_t recalled(void)
{
    struct ms_python_stack stack;
    ms_python_recall(64, &stack);
    cr_assert_eq(stack.frames == NULL, stack.node != 0);
    return stack.node;
}

/* The stack is read, has that node, and is told by it from then on. */
static void remember(uint32_t node)
{
    struct ms_python_stack stack;
    ms_python_recall(64, &stack);
    cr_assert_eq(stack.node, 0);
    ms_python_remember(&stack, node);
    cr_assert_eq(recalled(), node);
}

/* Three frames, of which the one in the middle is C's. */
static void load_to_be_known(void)
{
    load_3_12(3);
    *((char *)frames[1] + FRAME_OWNER_BYTE) = OWNED_BY_CSTACK;
    for (int i = 0; i < CAPTURES_TILL_TRUSTED; i++) {
        (void)capture(64);
    }
}

static void expect(struct ms_python_stack stack, uint32_t count, bool cut, bool lost)
{
    cr_assert_eq(stack.count, count, "%u frames", stack.count);
    cr_assert_eq(stack.cut, cut);
    cr_assert_eq(stack.lost, lost);
    cr_assert(stack.interpreter);
}

static void expect_nothing(struct ms_python_stack stack)
{
    cr_assert_eq(stack.count, 0);
    cr_assert_not(stack.cut || stack.lost || stack.interpreter);
}

Test(python, frames_of_3_12)
{
    load_3_12(3);
    *((char *)frames[1] + FRAME_OWNER_BYTE) = OWNED_BY_CSTACK;
    struct ms_python_stack stack = capture(64);
    expect(stack, 2, false, false);
    cr_assert_eq(stack.frames[0].code, address(codes[0]));
    cr_assert_eq(stack.frames[1].code, address(codes[2]));
    cr_assert_eq(stack.frames[0].instruction, 10);
    cr_assert_eq(stack.frames[1].instruction, 14);
    cr_assert_eq(stack.frames[0].flags, MS_PYTHON_ENTRY);
    cr_assert_neq(stack.frames[0].identity, stack.frames[1].identity);
    cr_assert_null(ms_python_refusal());
}

static void *capture_here(void *stack)
{
    *(struct ms_python_stack *)stack = capture(64);
    return NULL;
}

static void capture_meanwhile(void)
{
    struct ms_python_stack stack;
    pthread_t other;
    cr_assert_eq(pthread_create(&other, NULL, capture_here, &stack), 0);
    pthread_join(other, NULL);
    cr_assert(stack.interpreter);
    cr_assert_eq(stack.count, 3);
}

Test(python, frames_are_read_while_another_thread_searches_the_interpreter)
{
    load_3_12(3);
    fake->on_version = capture_meanwhile;
    expect(capture(64), 3, false, false);
}

Test(python, entries_are_what_c_called)
{
    load_3_12(3);
    struct ms_python_stack stack = capture(64);
    cr_assert_eq(stack.frames[0].flags, 0);
    cr_assert_eq(stack.frames[1].flags, 0);
    cr_assert_eq(stack.frames[2].flags, MS_PYTHON_ENTRY);
    expect(capture(2), 2, true, false);
}

Test(python, identity_follows_each_name)
{
    load_3_12(1);
    uint64_t first = capture(1).frames[0].identity;
    uint64_t *named[] = {&codes[0][CODE_FILE], &codes[0][CODE_FUNCTION], &codes[0][CODE_TABLE],
                         &codes[0][CODE_UNITS], &codes[0][CODE_LINE_BYTE / 8]};
    for (size_t i = 0; i < sizeof(named) / sizeof(*named); i++) {
        uint64_t was = *named[i];
        *named[i] += UINT64_C(8) << 32 | 16;
        cr_assert_neq(capture(1).frames[0].identity, first, "%zu", i);
        *named[i] = was;
    }
    cr_assert_eq(capture(1).frames[0].identity, first);
}

Test(python, a_frame_that_has_not_begun_is_at_the_beginning)
{
    load_3_12(1);
    frames[0][FRAME_INSTRUCTION] = address(codes[0]) + CODE_BEGIN_BYTE - 2;
    cr_assert_eq(capture(1).frames[0].instruction, 0);
}

Test(python, wild_pointers_end_the_stack)
{
    load_3_12(3);
    void *hole = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t wild[] = {1, 8, 0x1001, address(hole), UINT64_MAX - 7, UINT64_C(1) << 63};
    for (size_t i = 0; i < sizeof(wild) / sizeof(*wild); i++) {
        make_stack(3);
        frames[1][FRAME_PREVIOUS] = wild[i];
        expect(capture(64), 2, false, true);
        make_stack(3);
        frames[1][FRAME_CODE] = wild[i];
        expect(capture(64), 1, false, true);
        make_stack(3);
        cframe[0] = wild[i];
        expect(capture(64), 0, false, true);
        make_stack(3);
        thread[THREAD_CFRAME] = wild[i];
        expect(capture(64), 0, false, true);
        make_stack(3);
        fake->thread = (void *)wild[i];
        expect(capture(64), 0, false, true);
    }
}

Test(python, what_is_not_code_ends_the_stack)
{
    load_3_12(3);
    codes[1][CODE_TYPE] = address(fake->type_type);
    expect(capture(64), 1, false, true);
}

Test(python, circles_end)
{
    load_3_12(2);
    frames[1][FRAME_PREVIOUS] = address(frames[0]);
    expect(capture(64), 64, true, false);
    expect(capture(MS_STACK_DEPTH_MAX), MS_STACK_DEPTH_MAX, true, false);
    *((char *)frames[0] + FRAME_OWNER_BYTE) = OWNED_BY_CSTACK;
    *((char *)frames[1] + FRAME_OWNER_BYTE) = OWNED_BY_CSTACK;
    expect(capture(64), 0, false, true);
}

/* Plain loads are used once stacks looked well; what cannot be an address is still seen. */
Test(python, trust_is_lost_again)
{
    load_3_12(3);
    for (int i = 0; i < 100; i++) {
        expect(capture(64), 3, false, false);
    }
    frames[1][FRAME_PREVIOUS] = 12;
    expect(capture(64), 2, false, true);
    void *hole = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    frames[1][FRAME_PREVIOUS] = address(hole);
    expect(capture(64), 2, false, true);
}

Test(python, known_by_its_node)
{
    load_to_be_known();
    const struct ms_python_stack read = capture(64);
    const uint64_t hash = ms_python_hash(&read);
    struct ms_python_stack stack;
    remember(7);
    ms_python_recall(64, &stack);
    expect(stack, 2, false, false);
    cr_assert_eq(ms_python_hash(&stack), hash);
    expect(capture(64), 2, false, false);
    cr_assert_not_null(capture(64).frames);
}

/* Each word that a frame is made of; of the outer frame, too. */
Test(python, unknown_where_a_word_differs)
{
    load_to_be_known();
    remember(7);
    for (int i = 0; i < 3; i += 2) {
        uint64_t *words[] = {&frames[i][FRAME_INSTRUCTION], &codes[i][CODE_FILE],
                             &codes[i][CODE_FUNCTION],      &codes[i][CODE_TABLE],
                             &codes[i][CODE_UNITS],         &codes[i][CODE_LINE_BYTE / 8]};
        for (size_t k = 0; k < sizeof(words) / sizeof(*words); k++) {
            const uint64_t was = *words[k];
            *words[k] += UINT64_C(1) << 32;
            cr_assert_eq(recalled(), 0, "%d, %zu", i, k);
            *words[k] = was;
            cr_assert_eq(recalled(), 7);
        }
        frames[i][FRAME_CODE] = address(codes[3]);
        memcpy(codes[3], codes[i], sizeof(codes[3]));
        cr_assert_eq(recalled(), 0);
        frames[i][FRAME_CODE] = address(codes[i]);
    }
    frames[0][FRAME_PREVIOUS] = address(frames[2]);
    cr_assert_eq(recalled(), 0);
    frames[0][FRAME_PREVIOUS] = address(frames[1]);
    *((char *)frames[1] + FRAME_OWNER_BYTE) = 0;
    cr_assert_eq(recalled(), 0);
    *((char *)frames[1] + FRAME_OWNER_BYTE) = OWNED_BY_CSTACK;
    cr_assert_eq(recalled(), 7);
}

/* In 3.11 a byte says whether C called the frame: it may be the only difference. */
Test(python, unknown_where_c_calls_what_python_called)
{
    enum { CODE = 4, PREVIOUS = 6, INSTRUCTION = 7, ENTRY_BYTE = 68, BEGIN_BYTE = 184 };
    load("3.11.7 (main, Jan  1 2026, 00:00:00) [GCC]");
    fake->thread = thread;
    thread[THREAD_CFRAME] = address(cframe);
    cframe[1] = address(frames[0]);
    for (int i = 0; i < 2; i++) {
        codes[i][CODE_TYPE] = address(fake->code_type);
        codes[i][CODE_UNITS] = 50;
        codes[i][CODE_FILE] = 0x1000;
        codes[i][CODE_TABLE] = 0x3000 + (uint64_t)i;
        frames[i][CODE] = address(codes[i]);
        frames[i][INSTRUCTION] = address(codes[i]) + BEGIN_BYTE;
    }
    frames[0][PREVIOUS] = address(frames[1]);
    for (int i = 0; i < CAPTURES_TILL_TRUSTED; i++) {
        expect(capture(64), 2, false, false);
    }
    remember(7);
    *((char *)frames[0] + ENTRY_BYTE) = 1;
    remember(8);
    *((char *)frames[0] + ENTRY_BYTE) = 0;
    cr_assert_eq(recalled(), 7);
}

/* What lay further out has gone: it is not looked at. */
Test(python, known_frames_that_are_gone_are_not_read)
{
    load_to_be_known();
    uint64_t *gone = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(gone, frames[2], sizeof(frames[2]));
    frames[1][FRAME_PREVIOUS] = address(gone);
    remember(7);
    frames[1][FRAME_PREVIOUS] = address(frames[2]);
    (void)munmap(gone, 4096);
    cr_assert_eq(recalled(), 0);
    remember(8);
}

Test(python, outer_frames_are_shared)
{
    load_to_be_known();
    remember(7);
    frames[0][FRAME_INSTRUCTION] += 2;
    remember(8);
    cframe[0] = address(frames[2]);
    remember(9);
    cframe[0] = address(frames[0]);
    cr_assert_eq(recalled(), 8);
    frames[0][FRAME_INSTRUCTION] -= 2;
    cr_assert_eq(recalled(), 7);
}

Test(python, many_are_forgotten_and_known_anew)
{
    load_to_be_known();
    for (uint32_t node = 1; node <= 10000; node++) {
        frames[0][FRAME_INSTRUCTION] = address(codes[0]) + CODE_BEGIN_BYTE;
        codes[0][CODE_FILE] = UINT64_C(0x10000) * node;
        remember(node);
    }
    codes[0][CODE_FILE] = 0x10000;
    cr_assert_eq(recalled(), 0);
    remember(1);
}

/* Neither cut nor lost ones, nor chains of objects. */
Test(python, only_whole_stacks_are_known)
{
    load_to_be_known();
    struct ms_python_stack stack;
    ms_python_recall(1, &stack);
    cr_assert(stack.cut);
    ms_python_remember(&stack, 7);
    cr_assert_eq(recalled(), 0);
    frames[2][FRAME_CODE] = 12;
    ms_python_recall(64, &stack);
    cr_assert(stack.lost);
    ms_python_remember(&stack, 7);
    frames[2][FRAME_CODE] = address(codes[2]);
    cr_assert_eq(recalled(), 0);
}

Test(python, nothing_is_read_while_it_ends)
{
    load_3_12(2);
    expect(capture(64), 2, false, false);
    fake->finalizing = 1;
    expect_nothing(capture(64));
    fake->finalizing = 0;
    fake->thread = NULL;
    expect_nothing(capture(64));
}

Test(python, no_interpreter)
{
    struct ms_python_code code;
    expect_nothing(capture(64));
    cr_assert_null(ms_python_refusal());
    cr_assert_not(ms_python_code(address(codes[0]), &code));
}

Test(python, loaded_late)
{
    expect_nothing(capture(64));
    load_3_12(2);
    uint32_t captures = 1;
    while (capture(64).count == 0) {
        cr_assert_leq(++captures, LATE_CAPTURES);
    }
}

static void refused(const char *version, const char *sentence)
{
    load(version);
    make_stack(2);
    expect_nothing(capture(64));
    expect_nothing(capture(64));
    cr_assert_str_eq(ms_python_refusal(), sentence);
}

Test(python, too_old)
{
    refused("3.8.18 (default)", "Python 3.8: its frames cannot be read here");
}

Test(python, too_new)
{
    refused("3.15.0a1 (main)", "Python 3.15: its frames cannot be read here");
}

Test(python, another_major)
{
    refused("4.12.0", "Python 4.12: its frames cannot be read here");
}

Test(python, without_the_gil)
{
    refused("3.14.0 free-threading build (main)",
            "Python 3.14 without the GIL: its frames cannot be read here");
}

Test(python, no_version)
{
    refused("", "Python 0.0: its frames cannot be read here");
}

Test(python, objects_of_another_shape)
{
    load("3.12.9");
    fake->code_type[1] = NULL;
    expect_nothing(capture(64));
    cr_assert_str_eq(ms_python_refusal(), "Python 3.12, built with options that change its "
                                          "objects: its frames cannot be read here");
}

Test(python, offsets_that_are_not_told)
{
    refused("3.13.1", "Python 3.13: its frames cannot be read here");
}

/* Fields where no version has them: what _PyRuntime says is what is used. */
static void tell_3_14(void)
{
    enum { VERSION = 1, THREAD_FRAME = 26, PREVIOUS = 32, CODE = 33, INSTRUCTION = 34, OWNER = 36 };
    enum { FILE_NAME = 40, FUNCTION = 42, TABLE = 43, LINE = 44, BEGIN = 48, TYPE = 51 };
    enum { BYTES_SIZE = 75, BYTES = 76, STATE = 78, LENGTH = 79, ASCII = 80 };
    uint64_t *words = fake->runtime;
    memcpy(words, "xdebugpy", 8);
    words[VERSION] = 0x030e00f0;
    words[THREAD_FRAME] = 200;
    words[PREVIOUS] = 24;
    words[CODE] = 32;
    words[INSTRUCTION] = 40;
    words[OWNER] = 100;
    words[FILE_NAME] = 96;
    words[FUNCTION] = 120;
    words[TABLE] = 112;
    words[LINE] = 88;
    words[BEGIN] = 216;
    words[TYPE] = 8;
    words[BYTES_SIZE] = 16;
    words[BYTES] = 32;
    words[STATE] = 32;
    words[LENGTH] = 16;
    words[ASCII] = 40;
}

Test(python, offsets_that_are_told)
{
    load("3.14.0 (main)");
    tell_3_14();
    thread[200 / 8] = address(frames[0]);
    frames[0][24 / 8] = address(frames[1]);
    frames[0][32 / 8] = address(codes[0]) | 1;
    frames[0][40 / 8] = address(codes[0]) + 216 + 6;
    *((char *)frames[1] + 100) = OWNED_BY_CSTACK + 1;
    codes[0][CODE_TYPE] = address(fake->code_type);
    codes[0][CODE_UNITS] = 4;
    codes[0][96 / 8] = 1;
    fake->thread = thread;
    struct ms_python_stack stack = capture(64);
    expect(stack, 1, false, false);
    cr_assert_eq(stack.frames[0].code, address(codes[0]));
    cr_assert_eq(stack.frames[0].instruction, 6);
    cr_assert_eq(stack.frames[0].flags, MS_PYTHON_ENTRY);
}

Test(python, offsets_for_another_version)
{
    load("3.13.0 (main)");
    tell_3_14();
    expect_nothing(capture(64));
    cr_assert_not_null(ms_python_refusal());
}

static void bar_reading(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1 /* EPERM */),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(rules) / sizeof(*rules), rules};
    cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    cr_assert_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

Test(python, where_process_vm_readv_is_barred)
{
    bar_reading();
    load_3_12(3);
    expect(capture(64), 3, false, false);
    void *hole = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    frames[1][FRAME_PREVIOUS] = address(hole);
    expect(capture(64), 2, false, true);
}

Test(python, reading_at_the_edge_of_memory)
{
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_eq(munmap(pages + 4096, 4096), 0);
    memset(pages, 7, 4096);
    char out[16];
    for (int round = 0; round < 2; round++) {
        cr_assert(ms_python_read(address(pages + 4080), out, 16));
        cr_assert_eq(out[15], 7);
        cr_assert_not(ms_python_read(address(pages + 4081), out, 16));
        cr_assert_not(ms_python_read(address(pages + 4096), out, 1));
        cr_assert_not(ms_python_read(0, out, 1));
        cr_assert_not(ms_python_read(UINT64_MAX - 7, out, 16));
        if (round == 0) {
            bar_reading();
        }
    }
}
