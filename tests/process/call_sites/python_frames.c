/* SPDX-License-Identifier: Apache-2.0 */
/* What Python asks of shim/sites/python/python.h through ctypes: preloaded, so that the library has
 * its thread-local memory. */
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim/sites/native/native.h"
#include "shim/sites/python/python.h"

#define EXPORT __attribute__((visibility("default")))

enum { CUT = 1, LOST = 2, INTERPRETER = 4 };

struct frames_stack {
    uint32_t count, flags;
    uint64_t hash;
    struct ms_python_frame frames[MS_STACK_DEPTH_MAX];
};

EXPORT void frames_capture(uint32_t depth, struct frames_stack *out);
EXPORT int frames_code(uint64_t code, struct ms_python_code *out);
EXPORT const char *frames_refusal(void);
EXPORT int frames_on_new_thread(struct frames_stack *out);
EXPORT uint32_t frames_loops(void);
EXPORT void frames_call(void (*function)(void));
EXPORT void frames_at_exit(void);
EXPORT void frames_on_signal(int number, struct frames_stack *out);
EXPORT uint64_t frames_least_ns(uint32_t depth, uint32_t rounds);
EXPORT void frames_many(uint32_t depth, uint32_t rounds);

/* A stack that is recalled must be the one that is read now. */
static void check_remembered(const struct ms_python_stack *read)
{
    struct ms_python_stack recalled;
    ms_python_recall(MS_STACK_DEPTH_MAX, &recalled);
    if (recalled.count == read->count && ms_python_hash(&recalled) != ms_python_hash(read)) {
        abort();
    }
    if (recalled.node == 0) {
        ms_python_remember(&recalled, (uint32_t)ms_python_hash(&recalled) | 1);
    } else if (recalled.node != ((uint32_t)recalled.hash | 1)) {
        abort();
    }
}

void frames_capture(uint32_t depth, struct frames_stack *out)
{
    struct ms_python_stack stack;
    ms_python_capture(depth, &stack);
    check_remembered(&stack);
    ms_python_capture(depth, &stack);
    out->count = stack.count;
    out->flags =
        (stack.cut ? CUT : 0) | (stack.lost ? LOST : 0) | (stack.interpreter ? INTERPRETER : 0);
    out->hash = ms_python_hash(&stack);
    memcpy(out->frames, stack.frames, stack.count * sizeof(*stack.frames));
}

int frames_code(uint64_t code, struct ms_python_code *out)
{
    return ms_python_code(code, out);
}

const char *frames_refusal(void)
{
    return ms_python_refusal();
}

static void *capture_there(void *out)
{
    frames_capture(MS_STACK_DEPTH_MAX, out);
    return NULL;
}

/* On a thread that Python does not know. */
int frames_on_new_thread(struct frames_stack *out)
{
    pthread_t thread;
    int status = pthread_create(&thread, NULL, capture_there, out);
    return status != 0 ? status : pthread_join(thread, NULL);
}

/* How many calls of the interpreter's loop are on the native stack: what the unwinder and the
 * symbol table say, which know nothing of Python's frames. */
uint32_t frames_loops(void)
{
    enum { DEPTH = 2048 };
    void *addresses[DEPTH];
    uint32_t loops = 0;
    int count = backtrace(addresses, DEPTH);
    for (int i = 0; i < count; i++) {
        Dl_info info;
        if (dladdr((char *)addresses[i] - 1, &info) != 0 && info.dli_sname != NULL &&
            strcmp(info.dli_sname, "_PyEval_EvalFrameDefault") == 0) {
            loops++;
        }
    }
    return loops;
}

/* C in the middle of a stack: a call back into Python through ctypes. */
void frames_call(void (*function)(void))
{
    function();
}

static void capture_at_exit(void)
{
    struct frames_stack stack;
    frames_capture(MS_STACK_DEPTH_MAX, &stack);
    (void)!write(STDOUT_FILENO, "left", 4);
}

/* After the interpreter is gone. */
void frames_at_exit(void)
{
    (void)atexit(capture_at_exit);
}

static struct frames_stack *signal_stack;

static void capture_in_handler(int number)
{
    (void)number;
    frames_capture(MS_STACK_DEPTH_MAX, signal_stack);
}

void frames_on_signal(int number, struct frames_stack *out)
{
    struct sigaction action = {.sa_handler = capture_in_handler, .sa_flags = SA_RESTART};
    signal_stack = out;
    (void)sigaction(number, &action, NULL);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* The least that 100 captures took. */
uint64_t frames_least_ns(uint32_t depth, uint32_t rounds)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t round = 0; round < rounds; round++) {
        uint64_t begin = now_ns();
        frames_many(depth, 100);
        uint64_t took = now_ns() - begin;
        least = took < least ? took : least;
    }
    return least;
}

/* As for call sites: from the second time on the stack is recalled. */
void frames_many(uint32_t depth, uint32_t rounds)
{
    struct ms_python_stack stack;
    for (uint32_t i = 0; i < rounds; i++) {
        ms_python_recall(depth, &stack);
        ms_python_remember(&stack, 1);
    }
}
