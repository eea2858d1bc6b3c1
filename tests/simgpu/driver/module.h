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

/* An image's description of one kernel or global; all modules made from the image share it. */
struct sim_symbol {
    struct sim_symbol *next;
    char *name;
    bool is_global;
    uint64_t global_bytes;
    unsigned parameter_count;
    size_t offsets[SIM_MAX_PARAMETERS], sizes[SIM_MAX_PARAMETERS];
    bool parameters_untold; /* the driver does not describe its parameters */
    /* What the kernel does, without sim_lock; NULL: nothing. If `check` is not NULL, the kernel
     * does it only if `check` returns true at the launch, when parameters and context are known. */
    bool (*check)(const struct sim_launch *launch);
    void (*run)(const struct sim_launch *launch);
    /* At the launch of a kernel that computes, under sim_lock: notes whether the host may read what
     * it stores (values.h). NULL: notes nothing. */
    void (*follow)(const struct sim_launch *launch);
    bool lasts;           /* sim_kernel_lasts */
    size_t element_bytes; /* of a torch_kernel.c kernel for elements of any type */
};

struct sim_image {
    unsigned references;
    bool declared; /* the image has no other functions */
    struct sim_symbol *symbols;
};

struct sim_global {
    struct sim_global *next;
    const char *name; /* the symbol's */
    struct sim_range *range;
};

struct CUmod_st {
    struct sim_object object;
    CUcontext context;
    struct CUmod_st *next; /* in the context's list */
    struct sim_image *image;
    struct CUlib_st *library; /* the library whose part in this context it is; NULL: loaded alone */
    struct CUfunc_st *functions;
    struct sim_global *globals;
};

struct CUfunc_st {
    struct sim_object object;
    struct CUmod_st *module;
    struct CUfunc_st *next;
    struct CUkern_st *kernel; /* NULL unless it belongs to one */
    const struct sim_symbol *symbol;
    bool launched;
    uint64_t charged_bytes; /* on its device, from its first launch on */
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

/* The function for a handle in a context: a CUfunction is itself; a CUkernel (which launches accept
 * in its place) has a function there. NULL: neither, or out of memory. */
CUfunction sim_function_of(CUfunction handle, CUcontext context);

/* The kernels that exist in every image (simgpu.h). */
void sim_kernel_fill(const struct sim_launch *launch);
void sim_kernel_check(const struct sim_launch *launch);
void sim_kernel_spin(const struct sim_launch *launch);

/* Whether it runs for a time of its own, for which the launch does not wait. */
bool sim_kernel_lasts(const struct sim_launch *launch);
bool sim_kernel_has_effect(const struct sim_launch *launch);
unsigned sim_kernel_parameter_count(CUfunction function);
/* What the kernel does. Without sim_lock. */
void sim_kernel_run(const struct sim_launch *launch);

/* Fills a launch from the arguments of cuLaunchKernel, and copies the parameters. Errors as
 * documented for cuLaunchKernel. sim_work_release releases the launch. */
CUresult sim_launch_prepare(struct sim_launch *launch, CUfunction function, const unsigned grid[3],
                            const unsigned block[3], unsigned shared_bytes, void **parameters,
                            void **extra);

void sim_modules_unload_all(CUcontext context);

/* Charges what a function's first launch takes, in memory and time (SIMGPU_FIRST_LAUNCH); later
 * launches take nothing. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult sim_function_launched(CUfunction function);

#endif
