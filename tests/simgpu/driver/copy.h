/* SPDX-License-Identifier: Apache-2.0 */
/* Copies: turns the application's arguments into one sim_copy in a stream. All under sim_lock. */
#ifndef SIMGPU_COPY_H
#define SIMGPU_COPY_H

#include "driver_api.h"
#include "work.h"

/* Makes the work of a three-dimensional copy; checks both ends for the device of `context`. */
CUresult sim_copy_prepare_3d(const CUDA_MEMCPY3D *parameters, CUcontext context,
                             struct sim_work *work);

/* The same for a memset node. */
CUresult sim_set_prepare(const CUDA_MEMSET_NODE_PARAMS *parameters, CUcontext context,
                         struct sim_work *work);

#endif
