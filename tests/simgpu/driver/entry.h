/* SPDX-License-Identifier: Apache-2.0 */
/* The entry into every driver function. It counts the call, may make it fail, refuses it if the
 * driver is not initialized, and then holds sim_lock until the function returns.
 *
 *   CUresult cuSomething(...)
 *   {
 *       SIM_ENTER(cuSomething);
 *       ...
 *   }
 *
 * Until then pthread_cancel does not end the thread either: the driver's own locks would stay
 * taken.
 *
 * This one lock guards all state of the simulated GPU. Waiting for a stream releases it meanwhile
 * (sim_wait_progress). Host functions run, and bytes of copies move, outside it. */
#ifndef SIMGPU_ENTRY_H
#define SIMGPU_ENTRY_H

#include "driver_api.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sim_function {
#define SIM_DRIVER(base, symbol, version, flavour) SIM_ID_##symbol,
#include "driver_table.h"
#undef SIM_DRIVER
    SIM_FUNCTIONS
};

struct sim_function_info {
    const char *base, *symbol;
    int version;
    bool per_thread;
    void *address;
};

extern const struct sim_function_info sim_functions[SIM_FUNCTIONS];

/* The functions that a name denotes: every ABI and flavour of a base name, one exported name, or
 * any function. */
struct sim_function_name {
    enum { SIM_NAME_BASE, SIM_NAME_SYMBOL, SIM_NAME_ANY } kind;
    int index;
};

/* False: no such function. "any" denotes any function. */
bool sim_find_function(const char *name, size_t length, struct sim_function_name *found);
bool sim_is_named(enum sim_function function, struct sim_function_name name);
/* Calls so far. */
uint64_t sim_calls_of(struct sim_function_name name);

struct sim_guard {
    CUresult status;
    bool locked;
    int cancellation; /* the thread's state before */
};

struct sim_guard sim_enter(enum sim_function function);
/* The same for functions that work before cuInit (and take no lock). */
struct sim_guard sim_enter_early(enum sim_function function);
void sim_leave(struct sim_guard *guard);

#define SIM_GUARDED(entry)                                                     \
    struct sim_guard sim_guard_ __attribute__((cleanup(sim_leave))) = (entry); \
    if (sim_guard_.status != CUDA_SUCCESS) {                                   \
        return sim_guard_.status;                                              \
    }                                                                          \
    _Static_assert(1, "")

/* Checks of arguments that the driver makes before anything else, even before cuInit and without a
 * context (seen: an H200, driver 580). */
#define SIM_JUDGE(fine, otherwise) \
    do {                           \
        if (!(fine)) {             \
            return (otherwise);    \
        }                          \
    } while (0)

#define SIM_ENTER(symbol)       SIM_GUARDED(sim_enter(SIM_ID_##symbol))
#define SIM_ENTER_EARLY(symbol) SIM_GUARDED(sim_enter_early(SIM_ID_##symbol))

/* For threads of the simulated GPU itself. */
void sim_lock(void);
void sim_unlock(void);

/* For pthread_cond_wait. */
pthread_mutex_t *sim_mutex(void);

/* Releases sim_lock, and waits until some stream has made progress or 10 ms are over. */
void sim_wait_progress(void);
/* Wakes all threads that wait for progress. The caller holds sim_lock. */
void sim_announce_progress(void);

/* Runs a function of the application on a thread of the simulated GPU. Driver calls from it fail
 * with CUDA_ERROR_NOT_PERMITTED (cuLaunchHostFunc: it "must not make any CUDA API calls"). One at a
 * time, except for those that stand for kernels. Without sim_lock. */
void sim_call_host_function(CUhostFn function, void *argument, bool as_kernel);
void sim_call_stream_callback(CUstreamCallback function, CUstream stream, void *argument);

/* cuInit's part: initializes the library, once. The caller holds nothing. */
CUresult sim_initialise(void);
/* True in a child that was forked after the parent had initialised. */
bool sim_is_forked_child(void);

/* Waits until that time of sim_now_ns, to the microsecond, and delays only the caller. */
void sim_wait_until_ns(uint64_t end_ns);

/* Delays a call to the time that it takes on a real driver, counted from its beginning, times
 * SIMGPU_LATENCY; no delay without that. Nanoseconds. The caller holds sim_lock, which is released
 * meanwhile. */
void sim_charge_latency(uint64_t duration_ns);

uint64_t sim_now_ns(void);

/* Sleeps for so long, without sim_lock; not at all for 0. */
void sim_sleep_us(uint64_t duration_us);

/* The same with sim_lock held, which is released meanwhile: other threads see the state from
 * before. */
void sim_pass_time_us(uint64_t duration_us);

#endif
