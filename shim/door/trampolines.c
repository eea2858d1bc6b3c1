/* SPDX-License-Identifier: Apache-2.0 */
/* The exported functions. Each finds the driver's own, and passes the call to its serving function
 * unless this thread is inside memshim already. Calls that queue work on a device pass the gate. */
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "shim/door/entry.h"
#include "shim/driver/gate.h"
#include "shim/driver/hook.h"
#include "shim/hooks/detour.h"
#include "shim/hooks/serve.h"
#include "shim/policy/heat.h"
#include "shim/policy/sync_memops.h"
#include "shim/process/hot.h"

static inline __attribute__((always_inline)) const struct ms_real_functions *real_functions(void)
{
    const struct ms_real_functions *real =
        atomic_load_explicit(&ms_real_published, memory_order_acquire);
    return __builtin_expect(real != &ms_real_none, 1) ? real : ms_entry_open();
}

/* The resolver does nothing that could re-enter memshim. And a library that asks it from inside one
 * of our driver calls keeps the answer for good. So its answers are always hooks. */
static inline bool is_resolver(enum ms_hook_id row)
{
    return row == MS_HOOK_ID_cuGetProcAddress || row == MS_HOOK_ID_cuGetProcAddress_v2;
}

/* gate.def's class for each row's function. A row whose function is missing there does not
 * compile. */
enum {
#define MS_GATE(base, class) CLASS_##base = MS_GATE_##class,
#include "shim/tables/gate.def"
};
#define IS(base, class) ((int)CLASS_##base == (int)MS_GATE_##class)

/* A call that memshim serves or watches. Inside memshim it goes straight to the driver, but passes
 * the gate if its serving function would have done so. */
#define GUARDED(linkage, name, symbol, base, params, args)                          \
    linkage CUresult name##_##symbol params                                         \
    {                                                                               \
        const struct ms_real_functions *real = real_functions();                    \
        if (real->symbol == NULL) {                                                 \
            return CUDA_ERROR_NOT_FOUND;                                            \
        }                                                                           \
        if (is_resolver(MS_HOOK_ID_##symbol)) {                                     \
            return ms_process_inert() ? real->symbol args : ms_serve_##symbol args; \
        }                                                                           \
        const bool serves = ms_guard_enter_here();                                  \
        const bool counts = IS(base, GATED) || (!serves && IS(base, WITHIN));       \
        if (counts) {                                                               \
            ms_gate_enter();                                                        \
        }                                                                           \
        CUresult result = serves ? ms_serve_##symbol args : real->symbol args;      \
        if (counts) {                                                               \
            ms_gate_leave();                                                        \
        }                                                                           \
        if (serves) {                                                               \
            ms_guard_leave();                                                       \
        }                                                                           \
        return result;                                                              \
    }

/* Trampolines have names of their own, so that the table of entries holds these very functions, and
 * not the address to which the loader binds the exported name. */
#define EXPORTED(symbol, params) \
    __attribute__((alias("trampoline_" #symbol), visibility("default"))) CUresult symbol params;

#define TRAMPOLINE_SERVED(symbol, base, params, args)       \
    GUARDED(static, trampoline, symbol, base, params, args) \
    EXPORTED(symbol, params)
#define TRAMPOLINE_FORWARDED TRAMPOLINE_SERVED
#define TRAMPOLINE_WATCHED   TRAMPOLINE_SERVED

/* A call without a serving function: it passes the gate, then runs `after`, which may change its
 * result. */
#define PASSING(symbol, params, args, after)                     \
    static CUresult trampoline_##symbol params                   \
    {                                                            \
        const struct ms_real_functions *real = real_functions(); \
        if (real->symbol == NULL) {                              \
            return CUDA_ERROR_NOT_FOUND;                         \
        }                                                        \
        ms_gate_enter();                                         \
        CUresult result = real->symbol args;                     \
        ms_gate_leave();                                         \
        after;                                                   \
        return result;                                           \
    }                                                            \
    EXPORTED(symbol, params)

#define TRAMPOLINE_GATED(symbol, base, params, args) PASSING(symbol, params, args, (void)0)

/* Memory of another device than the current one is accessed by a detour. */
#define DETOUR(symbol, args, ...)                               \
    MS_BY_DETOUR(result, ms_detour_again(&detour, __VA_ARGS__), \
                 (ms_gate_enter(), result = real->symbol args, ms_gate_leave(), result))

/* All three parameters are offered: a value that is no address belongs to no pool. */
#define FIRST_THREE(first, second, third, ...) \
    (const uint64_t[]){(uint64_t)(first), (uint64_t)(second), (uint64_t)(third)}, 3
#define TRAMPOLINE_TOUCHES(symbol, base, params, args)                              \
    PASSING(symbol, params, args, DETOUR(symbol, args, FIRST_THREE args, &hStream); \
            ms_heat_is_on() ? TOUCH(FIRST_THREE args) : (void)0)
#define TOUCH(...) ms_heat_touch_each(__VA_ARGS__)

enum {
#define MS_HOOK(symbol, base, version, flavour, params, args, disposition, doc) \
    FLAVOUR_##symbol = MS_HOOK_##flavour,
#include "shim/tables/hooks.def"
};

#define TRAMPOLINE_COMPLETES(symbol, base, params, args)                    \
    PASSING(                                                                \
        symbol, params, args, DETOUR(symbol, args, FIRST_THREE args, NULL); \
        (ms_heat_is_on() ? TOUCH(FIRST_THREE args) : (void)0,               \
         ms_sync_memops_are_on() ? result = COMPLETE(result, symbol, FIRST_THREE args) : result))
#define COMPLETE(result, symbol, ...) \
    ms_sync_memops_complete(result, (int)FLAVOUR_##symbol == (int)MS_HOOK_PER_THREAD, __VA_ARGS__)

/* A launch of a function that was launched before: counted, then straight to the driver. In every
 * other case (the gate is closed, somebody watches, the thread's first call, the driver not found
 * yet) the function is not in the thread's table, which leads to the slow path. Every launch of the
 * process pays for each instruction here. So launch_trampolines.c has these trampolines in assembly
 * for x86-64. */
#ifdef MS_LAUNCH_TRAMPOLINES
#    define TRAMPOLINE_LAUNCHED(symbol, base, params, args)                               \
        extern __attribute__((visibility("hidden"))) CUresult trampoline_##symbol params; \
        CUresult first_##symbol params;                                                   \
        GUARDED(__attribute__((used)), first, symbol, base, params, args)
#else
#    define TRAMPOLINE_LAUNCHED(symbol, base, params, args)     \
        GUARDED(static, first, symbol, base, params, args)      \
        static CUresult trampoline_##symbol params              \
        {                                                       \
            if (__builtin_expect(ms_gate_count_launch(f), 1)) { \
                CUresult result = MS_REAL(symbol) args;         \
                ms_gate_leave();                                \
                return result;                                  \
            }                                                   \
            ms_gate_leave();                                    \
            return first_##symbol args;                         \
        }                                                       \
        EXPORTED(symbol, params)
#endif

#define MS_HOOK(symbol, base, version, flavour, params, args, disposition, doc) \
    TRAMPOLINE_##disposition(symbol, base, params, args)
#include "shim/tables/hooks.def"

void *const ms_hook_entry[MS_HOOK_COUNT] = {
#define MS_HOOK(symbol, base, version, flavour, params, args, disposition, doc) \
    (void *)trampoline_##symbol,
#include "shim/tables/hooks.def"
};
