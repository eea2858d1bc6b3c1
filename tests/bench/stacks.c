/* SPDX-License-Identifier: Apache-2.0 */
/* A capture of a native stack of 40 frames, beside unw_backtrace of the same: where nothing has
 * changed since the last one, where the innermost 5 or 25 frames have, where all have. stacks
 * [ROUNDS]: a line for each: name, nanoseconds for one capture, those for one unw_backtrace. What
 * the calls themselves cost that make the stack is measured too, and taken off. stacks ROUNDS NAME
 * WHAT: that case alone, of capture or backtrace or nothing, for an instruction counter. */
#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#include "shim/sites/native/native.h"
#include "timing.h"

#define FRAMES   40
#define CAPTURES 2000u
#define CODES    64 /* functions */

typedef uint64_t (*function_t)(int level);
typedef int (*backtrace_t)(void **, int);

static backtrace_t backtrace_of_libunwind;
static struct ms_native_stack last;
static void (*volatile look)(void);
static function_t functions[CODES];
static int base;         /* frames outside of the first of ours */
static uint8_t plan[64]; /* which function at which level */
static int bottom;       /* level at which the stack is looked at, or changed */
static uint32_t repeats; /* looks from there */
static int changing;     /* frames that come and go at the bottom */
static volatile int variant;

static uint64_t at_bottom(int level);

#define CODE(n)                                                   \
    __attribute__((noinline)) static uint64_t code_##n(int level) \
    {                                                             \
        volatile uint64_t room[(n) % 16 + 1];                     \
        room[0] = (uint64_t)level;                                \
        if (level == bottom) {                                    \
            return at_bottom(level) + room[0];                    \
        }                                                         \
        return functions[plan[level + 1]](level + 1) + room[0];   \
    }
#define CODES_OF_FOUR(n) CODE(n##0) CODE(n##1) CODE(n##2) CODE(n##3)
#define ALL_CODES(with)                                                                       \
    with(1) with(2) with(3) with(4) with(5) with(6) with(7) with(8) with(9) with(10) with(11) \
        with(12) with(13) with(14) with(15) with(16)
ALL_CODES(CODES_OF_FOUR)
#define NAMES_OF_FOUR(n) code_##n##0, code_##n##1, code_##n##2, code_##n##3,
static function_t functions[CODES] = {ALL_CODES(NAMES_OF_FOUR)};

static void look_not(void)
{
}

static void look_by_capture(void)
{
    ms_native_capture(64, &last);
}

static void look_by_backtrace(void)
{
    static void *addresses[64];
    last.count = (uint32_t)backtrace_of_libunwind(addresses, 64);
}

/* Other functions in the places of the innermost ones, each time. */
static void change(int outermost)
{
    variant ^= 1;
    for (int level = outermost; level < FRAMES; level++) {
        plan[level] = (uint8_t)((level * 7 + variant * 32) % CODES);
    }
}

__attribute__((noinline)) static uint64_t at_bottom(int level)
{
    if (changing == 0 || level == FRAMES - base - 1) {
        for (uint32_t i = 0; i < repeats; i++) {
            look();
        }
        return 1;
    }
    uint64_t sum = 0;
    const uint32_t all = repeats;
    repeats = 1;
    bottom = FRAMES - base - 1;
    for (uint32_t i = 0; i < all; i++) {
        change(level + 1);
        sum += functions[plan[level + 1]](level + 1);
    }
    return sum;
}

static uint64_t once(int changed)
{
    changing = changed;
    repeats = CAPTURES;
    change(0);
    if (changed >= FRAMES) {
        uint64_t sum = 0;
        repeats = 1;
        bottom = FRAMES - base - 1;
        for (uint32_t i = 0; i < CAPTURES; i++) {
            change(0);
            sum += functions[plan[0]](0);
        }
        return sum;
    }
    bottom = FRAMES - base - 1 - changed;
    return functions[plan[0]](0);
}

static double least_ns(void (*what)(void), int changed, uint64_t rounds)
{
    uint64_t least = UINT64_MAX;
    look = what;
    for (uint64_t r = 0; r < rounds; r++) {
        uint64_t start = now_ns();
        (void)once(changed);
        uint64_t took = now_ns() - start;
        least = took < least ? took : least;
    }
    return (double)least / CAPTURES;
}

static void open_libunwind(void)
{
    void *library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
    *(void **)&backtrace_of_libunwind = library != NULL ? dlsym(library, "unw_backtrace") : NULL;
    ms_native_prepare();
    if (backtrace_of_libunwind == NULL || ms_native_refusal() != NULL) {
        (void)fprintf(stderr, "stacks: libunwind.so.8 is needed\n");
        exit(1);
    }
}

/* The frames of look and of main and what calls it count too. */
static void count_base(void)
{
    look = look_by_capture;
    base = 0;
    (void)once(0);
    base = (int)last.count - FRAMES;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int changed;
    } cases[] = {{"unchanged", 0}, {"top_5", 5}, {"top_25", 25}, {"all", FRAMES}};
    const uint64_t rounds = count_argument(argc, argv, 300);
    open_libunwind();
    count_base();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (argc > 3 && strcmp(argv[2], cases[i].name) == 0) {
            bool captures = strcmp(argv[3], "capture") == 0;
            bool none = strcmp(argv[3], "nothing") == 0;
            (void)least_ns(none       ? look_not
                           : captures ? look_by_capture
                                      : look_by_backtrace,
                           cases[i].changed, rounds);
        } else if (argc <= 3) {
            double none = least_ns(look_not, cases[i].changed, rounds);
            double capture = least_ns(look_by_capture, cases[i].changed, rounds) - none;
            uint32_t frames = last.count;
            double backtrace = least_ns(look_by_backtrace, cases[i].changed, rounds) - none;
            (void)printf("%s %.1f %.1f (%u and %u frames)\n", cases[i].name, capture, backtrace,
                         frames, last.count);
        }
    }
    return 0;
}
