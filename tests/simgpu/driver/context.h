/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: which one is current on each thread, and what lives in a context. A context that was
 * destroyed or reset keeps its struct while something refers to it; a primary context always keeps
 * its handle. All under sim_lock. */
#ifndef SIMGPU_CONTEXT_H
#define SIMGPU_CONTEXT_H

#include "driver_api.h"
#include "object.h"

#include <stdbool.h>

#define SIM_LIMITS 16

struct sim_device;
struct sim_range;

struct CUctx_st {
    struct sim_object object;
    struct sim_device *device;
    struct CUctx_st *next; /* of all active contexts */
    uint64_t id;
    unsigned flags;
    bool primary;
    CUcontext base;   /* of a green context: the primary one, which it retains; otherwise NULL */
    CUgreenCtx green; /* of a green context: its handle */
    bool active;      /* false: destroyed, reset, or released for the last time */
    bool changing;    /* it is being made or ended */
    CUstream streams; /* the legacy stream first */
    CUstream legacy;
    CUstream collector;          /* made when first needed */
    unsigned busy_streams;       /* streams with incomplete work */
    unsigned capturing_blocking; /* capturing blocking streams */
    uint64_t peers;              /* bit i: access to device i was enabled */
    CUevent events;
    struct sim_range *ranges; /* memory that dies with the context */
    struct CUmod_st *modules;
    size_t limits[SIM_LIMITS];
    CUfunc_cache cache_config;
    CUsharedconfig shared_config;
};

struct CUgreenCtx_st {
    struct sim_object object;
    CUcontext context;
};

CUresult sim_green_check(CUgreenCtx green);

/* The current context of the calling thread; NULL: none. If that is a green context, returns the
 * primary one, in which everything except streams lives. sim_current_of_streams returns the green
 * one. */
CUcontext sim_current(void);
CUcontext sim_current_of_streams(void);

/* Whether `other` is `context`, or a green context of it: then its work is also work of
 * `context`. */
static inline bool sim_context_has(const struct CUctx_st *context, const struct CUctx_st *other)
{
    return other == context || other->base == context;
}

/* Makes a green context, which takes over one use of the primary one; NULL: out of memory. Ending
 * it waits for its work. Its streams remain, but cannot be used any more (cuda.h,
 * cuGreenCtxDestroy). */
CUcontext sim_context_green(CUcontext primary);
void sim_context_green_end(CUcontext context);

/* As cuDevicePrimaryCtxRetain and cuDevicePrimaryCtxRelease. */
CUresult sim_primary_retain(CUcontext *result, CUdevice dev);
CUresult sim_primary_release(CUdevice dev);

/* CUDA_SUCCESS if `context` is an active context; otherwise the driver's error. For handles from
 * the application: a destroyed one ends the process (object.h). */
CUresult sim_context_check(CUcontext context);

/* The same for the calling thread's current context. cuda.h defines what happens there after its
 * destruction: "If ctx is current to other threads, then ctx will remain current to those threads,
 * and attempting to access ctx from those threads will result in the error
 * CUDA_ERROR_CONTEXT_IS_DESTROYED" (cuCtxDestroy). */
CUresult sim_current_check(void);

/* For arguments in which NULL means the current context: replaces NULL by it, and checks. */
CUresult sim_context_or_current(CUcontext *context);

/* The first of all active contexts, linked by next. */
CUcontext sim_first_context(void);

/* A stream of the context that is hidden from the application; NULL: out of memory. */
CUstream sim_context_collector(CUcontext context);

CUcontext sim_context_retain(CUcontext context);
void sim_context_release(CUcontext context);

/* Declares `variable`, the current context, or returns from the calling function with an error. */
#define SIM_CURRENT(variable)                           \
    CUcontext variable = sim_current();                 \
    do {                                                \
        CUresult current_status_ = sim_current_check(); \
        if (current_status_ != CUDA_SUCCESS) {          \
            return current_status_;                     \
        }                                               \
    } while (0)

#endif
