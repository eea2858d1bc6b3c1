/* Between the door and what stands behind it.
 *
 * The door (trampolines.c, resolve.c) exports every function of hooks.def, finds the driver's own,
 * and calls ms_serve_<symbol> for each call that the application makes. The serving half
 * (shim/serve/) implements those, and reaches the driver through MS_REAL alone. A serving function
 * runs with this thread's guard set: whatever the driver or a library calls in turn goes straight
 * to the driver. */
#ifndef MEMSHIM_SHIM_HOOK_H
#define MEMSHIM_SHIM_HOOK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/cuda_api.h"

enum ms_hook_disposition {
    MS_HOOK_SERVED,
    MS_HOOK_FORWARDED,
    MS_HOOK_WATCHED,
    MS_HOOK_LAUNCHED,
    MS_HOOK_GATED,
    MS_HOOK_TOUCHES
};
enum ms_hook_flavour { MS_HOOK_ANY, MS_HOOK_LEGACY, MS_HOOK_PER_THREAD };

/* One index for every row of hooks.def. */
enum ms_hook_id {
#define MS_HOOK(symbol, base, version, flavour, params, args, disposition, doc) MS_HOOK_ID_##symbol,
#include "shim/hooks.def"
    MS_HOOK_COUNT
};

struct ms_hook_info {
    const char *symbol;
    const char *base;
    int version;
    enum ms_hook_flavour flavour;
    enum ms_hook_disposition disposition;
    const char *doc;
};
extern const struct ms_hook_info ms_hook_table[MS_HOOK_COUNT]; /* by enum ms_hook_id */

/* The driver's own functions, by row. A null one is what this driver lacks. */
struct ms_real_functions {
#define MS_HOOK(symbol, base, version, flavour, params, args, disposition, doc) \
    CUresult(*symbol) params; /* NOLINT(bugprone-macro-parentheses): a declaration has none */
#include "shim/hooks.def"
};

/* What is known of the driver once it has been seen; all null before. Published once, never freed.
 */
extern const struct ms_real_functions *_Atomic ms_real_published;

/* The driver's own function of that exported name, null where this driver lacks it. A serving
 * function's own symbol is never null while it runs. */
#define MS_REAL(symbol) (atomic_load_explicit(&ms_real_published, memory_order_acquire)->symbol)

/* A driver function that has no row (cuCtxGetCurrent, cuEventQuery, ...), by its exported name,
 * null where this driver lacks it. Looks the name up each time: keep the answer. */
void *ms_real_find(const char *symbol);

/* What the serving half implements, one for each row, except the two versions of cuGetProcAddress,
 * which the door answers itself, and what is only gated. */
#define MS_HOOK(symbol, base, version, flavour, params, args, disposition, doc) \
    CUresult ms_serve_##symbol params;
#include "shim/hooks.def"

/* Where the intercepted call returns to: the library that made it. Null outside a call. */
const void *ms_caller(void);

/* Initial-exec: a preloaded library's thread-local block is there from the start, so that access is
 * one instruction and never allocates. */
extern _Thread_local __attribute__((tls_model("initial-exec"))) struct ms_guard {
    const void *caller; /* null: not inside */
    bool inside;
} ms_guard;

enum ms_door { MS_DOOR_NEW, MS_DOOR_OPEN, MS_DOOR_SHUT /* in a fork child */ };
extern _Atomic int ms_door; /* enum ms_door */

/* Opens the door, once, and arms what watches the process; false where it is shut. */
bool ms_door_open(void);
void ms_door_shut(void);

/* The guard of this thread: taken by each trampoline, and for work that no trampoline begins
 * (reports of a framework, memshim.h, a thread of our own). enter is false where the thread is
 * inside already, or memshim is not to act at all (a fork child); then leave must not be called. */
static inline bool ms_guard_enter(const void *caller)
{
    const bool open = atomic_load_explicit(&ms_door, memory_order_relaxed) == MS_DOOR_OPEN;
    if (ms_guard.inside || (__builtin_expect(!open, 0) && !ms_door_open())) {
        return false;
    }
    ms_guard.inside = true;
    ms_guard.caller = caller;
    return true;
}

static inline void ms_guard_leave(void)
{
    ms_guard.inside = false;
    ms_guard.caller = NULL;
}

/* --- What the serving half gives the door ---------------------------------------------------- */

/* Around fork: every lock of the serving half taken, let go, or made anew (pools, arenas and tables
 * of the child are never used again: its hooks go straight to the driver). */
void ms_serve_fork_prepare(void);
void ms_serve_fork_parent(void);
void ms_serve_fork_child(void);

/* The process ends: once, from the exit handler, before the trace is closed. Other threads may
 * still be inside hooks. No driver call is made: the driver may be gone. */
void ms_serve_exit(void);

/* A range of a framework's allocator was born (bytes > 0) or died (bytes < 0) on this device.
 * total_bytes: the framework's own sum of live bytes, UINT64_MAX where it does not say. The guard
 * is set. */
void ms_serve_range(int device, const void *addr, int64_t bytes, uint64_t total_bytes);

/* The range's physical memory is about to be shown to a device or a process outside: it is not
 * moved any more. Nothing where the range is not memory of ours. The guard is set. */
void ms_serve_pin(uint64_t addr, uint64_t bytes);

/* The framework raises its out-of-memory error for a request of this size. cached_bytes: free in
 * its segments by its own count, where its tensors are not seen one by one; else 0. The guard is
 * set. */
void ms_oom_from_torch(int device, uint64_t requested_bytes, uint64_t cached_bytes);

#endif
