/* The exported functions: each finds the driver's own, and hands the call to the serving half
 * unless this thread is inside memshim already. What queues work on a device passes the gate. */
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "shim/gate.h"
#include "shim/hook.h"
#include "shim/hot.h"
#include "shim/life.h"
#include "shim/resolve.h"
#include "shim/serve/heat.h"

_Thread_local struct ms_guard ms_guard;
MS_HOT_DATA _Atomic int ms_door;

const void *ms_caller(void)
{
    return ms_guard.caller;
}

bool ms_door_open(void)
{
    int door = MS_DOOR_NEW;
    if (atomic_compare_exchange_strong(&ms_door, &door, MS_DOOR_OPEN)) {
        ms_life_arm();
    }
    return door != MS_DOOR_SHUT;
}

void ms_door_shut(void)
{
    atomic_store(&ms_door, MS_DOOR_SHUT);
}

static const struct ms_real_functions *real_functions(void)
{
    const struct ms_real_functions *real =
        atomic_load_explicit(&ms_real_published, memory_order_acquire);
    return __builtin_expect(real != &ms_real_none, 1) ? real : ms_resolve();
}

/* The resolver does nothing that could re-enter, and a library that asks it from inside a driver
 * call of ours keeps the answer for good: its answers are always hooks. */
static inline bool is_resolver(enum ms_hook_id row)
{
    return row == MS_HOOK_ID_cuGetProcAddress || row == MS_HOOK_ID_cuGetProcAddress_v2;
}

/* The class of each row's function in gate.def: a row whose function it lacks does not compile. */
enum {
#define MS_GATE(base, class) CLASS_##base = MS_GATE_##class,
#include "shim/gate.def"
};
#define IS(base, class) ((int)CLASS_##base == (int)MS_GATE_##class)

/* A call that memshim serves, or takes note of. Inside memshim it goes to the driver at once, but
 * past the gate like any other where the serving function would have seen to that. */
#define GUARDED(linkage, name, symbol, base, params, args)                       \
    linkage CUresult name##_##symbol params                                      \
    {                                                                            \
        const struct ms_real_functions *real = real_functions();                 \
        if (real->symbol == NULL) {                                              \
            return CUDA_ERROR_NOT_FOUND;                                         \
        }                                                                        \
        if (is_resolver(MS_HOOK_ID_##symbol)) {                                  \
            return ms_life_inert() ? real->symbol args : ms_serve_##symbol args; \
        }                                                                        \
        const bool serves = ms_guard_enter(__builtin_return_address(0));         \
        const bool counts = IS(base, GATED) || (!serves && IS(base, WITHIN));    \
        if (counts) {                                                            \
            ms_gate_enter();                                                     \
        }                                                                        \
        CUresult result = serves ? ms_serve_##symbol args : real->symbol args;   \
        if (counts) {                                                            \
            ms_gate_leave();                                                     \
        }                                                                        \
        if (serves) {                                                            \
            ms_guard_leave();                                                    \
        }                                                                        \
        return result;                                                           \
    }

/* Doors have names of their own, so that the table of entries holds these very functions, and not
 * the address that the loader prefers for the exported name. */
#define EXPORTED(symbol, params) \
    __attribute__((alias("door_" #symbol), visibility("default"))) CUresult symbol params;

#define DOOR_SERVED(symbol, base, params, args)       \
    GUARDED(static, door, symbol, base, params, args) \
    EXPORTED(symbol, params)
#define DOOR_FORWARDED DOOR_SERVED
#define DOOR_WATCHED   DOOR_SERVED

/* A call that nobody serves: it passes the gate, and `after`, an expression, is what follows it. */
#define PASSING(symbol, params, args, after)                     \
    static CUresult door_##symbol params                         \
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

#define DOOR_GATED(symbol, base, params, args) PASSING(symbol, params, args, (void)0)

/* Whatever lies at a parameter that is no address is none of the pool's. */
#define DOOR_TOUCHES(symbol, base, params, args) \
    PASSING(symbol, params, args, ms_heat_is_on() ? LOOK_AT args : (void)0)
#define LOOK_AT(first, second, third, ...) \
    ms_heat_look_at_each(                  \
        (const uint64_t[]){(uint64_t)(first), (uint64_t)(second), (uint64_t)(third)}, 3)

/* A launch of what was launched before: counted, and off to the driver. Whatever else is the case
 * (the gate is closed, somebody watches, a thread's first call, nothing resolved yet) shows in that
 * the function is not known: then it is looked at. Each instruction here is paid by every launch of
 * the process, so that launch_doors.c has these doors by hand for the usual machine. */
#ifdef MS_LAUNCH_DOORS
#    define DOOR_LAUNCHED(symbol, base, params, args)                               \
        extern __attribute__((visibility("hidden"))) CUresult door_##symbol params; \
        CUresult look_##symbol params;                                              \
        GUARDED(__attribute__((used)), look, symbol, base, params, args)
#else
#    define DOOR_LAUNCHED(symbol, base, params, args)           \
        GUARDED(static, look, symbol, base, params, args)       \
        static CUresult door_##symbol params                    \
        {                                                       \
            if (__builtin_expect(ms_gate_count_launch(f), 1)) { \
                CUresult result = MS_REAL(symbol) args;         \
                ms_gate_leave();                                \
                return result;                                  \
            }                                                   \
            ms_gate_leave();                                    \
            return look_##symbol args;                          \
        }                                                       \
        EXPORTED(symbol, params)
#endif

#define MS_HOOK(symbol, base, version, flavour, params, args, disposition, doc) \
    DOOR_##disposition(symbol, base, params, args)
#include "shim/hooks.def"

void *const ms_hook_entry[MS_HOOK_COUNT] = {
#define MS_HOOK(symbol, base, version, flavour, params, args, disposition, doc) \
    (void *)door_##symbol,
#include "shim/hooks.def"
};
