/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules, libraries and their kernels; simgpu.h describes the images. All under sim_lock, except
 * for what a launch does (sim_kernel_run).
 */
#ifndef SIMGPU_MODULE_H
#define SIMGPU_MODULE_H

#include "driver_api.h"
#include "object.h"
#include "work.h"

#include <stdbool.h>

#define SIM_MAX_PARAMETERS 64

/* What an image says about one kernel or global; shared by all modules made from it. */
struct sim_symbol {
    struct sim_symbol *next;
    char *name;
    bool is_global;
    uint64_t global_bytes;
    unsigned parameter_count;
    size_t offsets[SIM_MAX_PARAMETERS], sizes[SIM_MAX_PARAMETERS];
    bool parameters_untold; /* to who asks for them */
    /* What the kernel does, without sim_lock; NULL: nothing. Where `check` is not NULL it does so
     * if that says yes at the launch, with its parameters copied and its context known. */
    bool (*check)(const struct sim_launch *launch);
    void (*run)(const struct sim_launch *launch);
    /* At the launch of one that computes, under sim_lock: notes whether the host may read what it
     * stores (values.h). NULL: nothing is noted. */
    void (*follow)(const struct sim_launch *launch);
    bool lasts;           /* sim_kernel_lasts */
    size_t element_bytes; /* torch_kernel.c, of a kernel on elements of any kind */
};

struct sim_image {
    unsigned references;
    bool declared; /* no other functions exist in it */
    struct sim_symbol *symbols;
};

struct sim_global {
    struct sim_global *next;
    const char *name; /* of the symbol */
    struct sim_range *range;
};

struct CUmod_st {
    struct sim_object object;
    CUcontext context;
    struct CUmod_st *next; /* in the context */
    struct sim_image *image;
    struct CUlib_st *library; /* whose part in this context it is; NULL: loaded alone */
    struct CUfunc_st *functions;
    struct sim_global *globals;
};

struct CUfunc_st {
    struct sim_object object;
    struct CUmod_st *module;
    struct CUfunc_st *next;
    struct CUkern_st *kernel; /* NULL unless it came from one */
    const struct sim_symbol *symbol;
    bool launched;
    uint64_t charged_bytes; /* on its device, since its first launch */
    int attributes[CU_FUNC_ATTRIBUTE_MAX];
};

struct CUlib_st {
    struct sim_object object;
    struct CUlib_st *next;
    struct sim_image *image;
    struct CUkern_st *kernels;
};

struct CUkern_st {
    struct sim_object object;
    struct CUlib_st *library;
    struct CUkern_st *next;
    const struct sim_symbol *symbol;
    int attributes[CU_FUNC_ATTRIBUTE_MAX];
};

/*
 * The function behind a handle for a context: a CUfunction is itself, a CUkernel (which the launch
 * calls take in its place) is its function there. NULL: neither, or out of memory.
 */
CUfunction sim_function_of(CUfunction handle, CUcontext context);

/* The kernels that exist in every image (simgpu.h). */
void sim_kernel_fill(const struct sim_launch *launch);
void sim_kernel_check(const struct sim_launch *launch);
void sim_kernel_spin(const struct sim_launch *launch);

/* It takes its own time, which the launch does not wait for. */
bool sim_kernel_lasts(const struct sim_launch *launch);
bool sim_kernel_has_effect(const struct sim_launch *launch);
unsigned sim_kernel_parameter_count(CUfunction function);
/* What the kernel does. Without sim_lock. */
void sim_kernel_run(const struct sim_launch *launch);

/*
 * Fills a launch from what cuLaunchKernel was given; parameters are copied. Errors as documented
 * for cuLaunchKernel. The launch is released by sim_work_release.
 */
CUresult sim_launch_prepare(struct sim_launch *launch, CUfunction function, const unsigned grid[3],
                            const unsigned block[3], unsigned shared_bytes, void **parameters,
                            void **extra);

void sim_modules_unload_all(CUcontext context);

/* What a function's first launch takes, in memory and in time (SIMGPU_FIRST_LAUNCH): nothing for
 * later ones. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult sim_function_launched(CUfunction function);

#endif
