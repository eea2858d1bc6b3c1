/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts: what is current on each thread, and what lives in a context. A context that was
 * destroyed or reset keeps its struct while something refers to it; a primary context keeps its
 * handle for good. All under sim_lock.
 */
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
    CUcontext base;   /* of a green one: the primary context, which it retains; else NULL */
    CUgreenCtx green; /* likewise: its handle */
    bool active;      /* false: destroyed, reset, or released for the last time */
    bool changing;    /* its begin or its end is under way */
    CUstream streams; /* the legacy stream first, then the others */
    CUstream legacy;
    CUstream collector;          /* made when first needed */
    unsigned busy_streams;       /* with work that is not complete */
    unsigned capturing_blocking; /* blocking streams under capture */
    uint64_t peers;              /* bit i: access to device i was enabled */
    CUevent events;
    struct sim_range *ranges; /* memory that goes when the context goes */
    struct CUmod_st *modules;
    size_t limits[SIM_LIMITS];
    CUfunc_cache cache_config;
    CUsharedconfig shared_config;
};

struct CUgreenCtx_st {
    struct sim_object object;
    CUcontext context;
};

/* The current context of the calling thread; NULL: none. What lives in a green context but its
 * streams lives in the primary one: that is the answer then, but the green one where streams are
 * asked for. */
CUcontext sim_current(void);
CUcontext sim_current_of_streams(void);

/* Whether work of the one is work of the other: the same, or a green one of it. */
static inline bool sim_context_has(const struct CUctx_st *context, const struct CUctx_st *other)
{
    return other == context || other->base == context;
}

/* A green context, which has taken over one use of the primary one; NULL: out of memory. Its end
 * waits for its work. Its streams stay, and are of no use any more (cuda.h, cuGreenCtxDestroy). */
CUcontext sim_context_green(CUcontext primary);
void sim_context_green_end(CUcontext context);

/* As cuDevicePrimaryCtxRetain and cuDevicePrimaryCtxRelease. */
CUresult sim_primary_retain(CUcontext *result, CUdevice dev);
CUresult sim_primary_release(CUdevice dev);

/* CUDA_SUCCESS where `context` is one and active; else the error that the driver gives. For handles
 * that the application passes: one that is destroyed is not allowed (object.h). */
CUresult sim_context_check(CUcontext context);

/* The same for the calling thread's current context. cuda.h defines what happens there after its
 * destruction: "If ctx is current to other threads, then ctx will remain current to those threads,
 * and attempting to access ctx from those threads will result in the error
 * CUDA_ERROR_CONTEXT_IS_DESTROYED" (cuCtxDestroy). */
CUresult sim_current_check(void);

/* For arguments where NULL means the current context: puts that in, and checks. */
CUresult sim_context_or_current(CUcontext *context);

/* The first of all active contexts, linked by next. */
CUcontext sim_first_context(void);

/* A stream of the context that the application never sees; NULL: out of memory. */
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
