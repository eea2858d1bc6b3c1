/* The exported functions: each finds the driver's own, and hands the call to the serving half
 * unless this thread is inside memshim already. */
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "shim/hook.h"
#include "shim/life.h"
#include "shim/resolve.h"

_Thread_local struct ms_guard ms_guard;
_Atomic int ms_gate;

const void *ms_caller(void)
{
    return ms_guard.caller;
}

bool ms_gate_open(void)
{
    int gate = MS_GATE_NEW;
    if (atomic_compare_exchange_strong(&ms_gate, &gate, MS_GATE_OPEN)) {
        ms_life_arm();
    }
    return gate != MS_GATE_SHUT;
}

void ms_gate_shut(void)
{
    atomic_store(&ms_gate, MS_GATE_SHUT);
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

/* In a name of its own, so that the table of entries holds these very functions, and not the
 * address that the loader prefers for the exported name. */
#define MS_HOOK(symbol, base, version, flavour, params, args, disposition, doc)  \
    static CUresult door_##symbol params                                         \
    {                                                                            \
        const struct ms_real_functions *real = real_functions();                 \
        if (real->symbol == NULL) {                                              \
            return CUDA_ERROR_NOT_FOUND;                                         \
        }                                                                        \
        if (is_resolver(MS_HOOK_ID_##symbol)) {                                  \
            return ms_life_inert() ? real->symbol args : ms_serve_##symbol args; \
        }                                                                        \
        if (!ms_guard_enter(__builtin_return_address(0))) {                      \
            return real->symbol args;                                            \
        }                                                                        \
        CUresult result = ms_serve_##symbol args;                                \
        ms_guard_leave();                                                        \
        return result;                                                           \
    }                                                                            \
    __attribute__((alias("door_" #symbol), visibility("default"))) CUresult symbol params;
#include "shim/hooks.def"

void *const ms_hook_entry[MS_HOOK_COUNT] = {
#define MS_HOOK(symbol, base, version, flavour, params, args, disposition, doc) \
    (void *)door_##symbol,
#include "shim/hooks.def"
};
