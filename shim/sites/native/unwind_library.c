/* SPDX-License-Identifier: Apache-2.0 */
/* Loads libunwind, and walks stacks that only its tables describe. */
#include "shim/sites/native/unwind_library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#define UNW_LOCAL_ONLY
#include <libunwind.h>

#include "shim/driver/next_dlsym.h"

#define NAME_OF(function) #function
#define NAME(function)    NAME_OF(function)
#define STEPS_MAX         512
#define CACHE_LOG_SIZE    10 /* rules that libunwind caches for each thread, as a power of two */

static struct {
    int (*init_local)(unw_cursor_t *, unw_context_t *);
    int (*step)(unw_cursor_t *);
    int (*get_reg)(unw_cursor_t *, unw_regnum_t, unw_word_t *);
    int (*is_signal_frame)(unw_cursor_t *);
#if defined(__x86_64__)
    int (*getcontext)(unw_context_t *);
#endif
} unwind;

static _Atomic int opened; /* 0: not yet, 1: under way, 2: yes, 3: impossible */
enum { NOT_YET, UNDER_WAY, OPEN, MISSING };

static bool find_functions(void *library)
{
    *(void **)&unwind.init_local = ms_real_dlsym(library, NAME(unw_init_local));
    *(void **)&unwind.step = ms_real_dlsym(library, NAME(unw_step));
    *(void **)&unwind.get_reg = ms_real_dlsym(library, NAME(unw_get_reg));
    *(void **)&unwind.is_signal_frame = ms_real_dlsym(library, NAME(unw_is_signal_frame));
    bool found = unwind.init_local != NULL && unwind.step != NULL && unwind.get_reg != NULL &&
                 unwind.is_signal_frame != NULL;
#if defined(__x86_64__)
    *(void **)&unwind.getcontext = ms_real_dlsym(library, NAME(unw_tdep_getcontext));
    found = found && unwind.getcontext != NULL;
#endif
    return found;
}

/* Gives each thread its own cache, because the shared one has a lock. */
static void set_caching(void *library)
{
    unw_addr_space_t *space = ms_real_dlsym(library, NAME(unw_local_addr_space));
    int (*set_policy)(unw_addr_space_t, unw_caching_policy_t) =
        (int (*)(unw_addr_space_t, unw_caching_policy_t))ms_real_dlsym(
            library, NAME(unw_set_caching_policy));
    int (*set_size)(unw_addr_space_t, size_t, int) =
        (int (*)(unw_addr_space_t, size_t, int))ms_real_dlsym(library, NAME(unw_set_cache_size));
    if (space != NULL && set_policy != NULL) {
        (void)set_policy(*space, UNW_CACHE_PER_THREAD);
    }
    if (space != NULL && set_size != NULL) {
        (void)set_size(*space, (size_t)1 << CACHE_LOG_SIZE, 0);
    }
}

/* libunwind keeps a pipe, from its set-up on. Where the program has closed its standard streams it
 * would get their numbers, and who prints there would fill it and wait for ever. */
static void set_up(void *library)
{
    int held[STDERR_FILENO + 1];
    int count = 0;
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= STDERR_FILENO) {
        held[count++] = fd;
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    }
    set_caching(library);
    if (fd >= 0) {
        (void)close(fd);
    }
    while (count > 0) {
        (void)close(held[--count]);
    }
}

bool ms_unwind_library_open(void)
{
    int before = NOT_YET;
    if (atomic_compare_exchange_strong(&opened, &before, UNDER_WAY)) {
        void *library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
        bool usable = library != NULL && find_functions(library);
        if (usable) {
            set_up(library);
        }
        atomic_store_explicit(&opened, usable ? OPEN : MISSING, memory_order_release);
    }
    return ms_unwind_library_is_open();
}

bool ms_unwind_library_is_open(void)
{
    return atomic_load_explicit(&opened, memory_order_acquire) == OPEN;
}

static inline void take_context(unw_context_t *context)
{
#if defined(__x86_64__)
    (void)unwind.getcontext(context);
#else
    unw_getcontext(context);
#endif
}

__attribute__((noinline)) void ms_unwind_library_walk(struct ms_unwind_walk *walk)
{
    unw_context_t context;
    unw_cursor_t cursor;
    unw_word_t address;
    walk->count = 0;
    walk->ended = false;
    take_context(&context);
    int stepped = unwind.init_local(&cursor, &context);
    while (stepped >= 0 && walk->count < walk->most) {
        stepped = unwind.step(&cursor);
        if (stepped <= 0 || unwind.get_reg(&cursor, UNW_REG_IP, &address) < 0 || address == 0) {
            walk->ended = stepped >= 0;
            return;
        }
        /* The frame that a signal frame returns to was interrupted; it made no call. */
        walk->addresses[walk->count++] = address + (unwind.is_signal_frame(&cursor) > 0);
    }
}

#if defined(__x86_64__)
#    define FRAME_POINTER UNW_X86_64_RBP
#else
#    define FRAME_POINTER UNW_AARCH64_X29
#endif

static struct ms_unwind_frame frame_of(unw_cursor_t *cursor)
{
    unw_word_t address = 0, sp = 0, bp = 0;
    (void)unwind.get_reg(cursor, UNW_REG_IP, &address);
    (void)unwind.get_reg(cursor, UNW_REG_SP, &sp);
    (void)unwind.get_reg(cursor, FRAME_POINTER, &bp);
    address += address != 0 && unwind.is_signal_frame(cursor) > 0;
    return (struct ms_unwind_frame){address, sp, bp};
}

/* libunwind needs all registers of the frame, so it walks from here to that frame. */
__attribute__((noinline)) bool ms_unwind_library_step(struct ms_unwind_frame *frame)
{
    unw_context_t context;
    unw_cursor_t cursor;
    take_context(&context);
    if (unwind.init_local(&cursor, &context) < 0) {
        return false;
    }
    for (unsigned steps = 0; steps < STEPS_MAX; steps++) {
        if (unwind.step(&cursor) <= 0) {
            return false;
        }
        struct ms_unwind_frame at = frame_of(&cursor);
        if (at.sp == frame->sp && at.address == frame->address) {
            int stepped = unwind.step(&cursor);
            *frame = stepped > 0 ? frame_of(&cursor) : (struct ms_unwind_frame){0};
            return stepped >= 0;
        }
    }
    return false;
}
