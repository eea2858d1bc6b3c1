/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays, mipmapped arrays, texture and surface objects: memory in rows, charged to its device. */
#ifndef SIMGPU_ARRAY_H
#define SIMGPU_ARRAY_H

#include "driver_api.h"
#include "object.h"

#include <stdbool.h>

struct sim_range;

struct CUarray_st {
    struct sim_object object;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    struct sim_range *range; /* NULL: a level of a mipmapped array, in whose range it lies */
    char *address;
    size_t row_bytes, rows, slices; /* at least 1 row and 1 slice */
    struct CUmipmappedArray_st *mipmap;
};

struct CUmipmappedArray_st {
    struct sim_object object;
    struct sim_range *range;
    unsigned levels;
    CUarray level[16];
};

struct sim_texture {
    struct sim_object object;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_VIEW_DESC view;
    bool has_view, is_surface;
};

bool sim_array_is_valid(CUarray array);
/* The memory of the array, or of the mipmapped array that it belongs to, is freed. */
void sim_array_forget(CUarray array);

#endif
