/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays, mipmapped arrays, texture and surface objects. See array.h. */
#include "array.h"

#include "capture.h"
#include "context.h"
#include "device.h"
#include "entry.h"
#include "memory.h"
#include "stream.h"

#include <string.h>

#define MAX_LEVELS 16

bool sim_array_is_valid(CUarray array)
{
    return sim_object_is(&sim_arrays, array);
}

/* 0: not a format that arrays of the simulated GPU can have. */
static size_t format_bytes(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        return 0;
    }
}

static size_t at_least_one(size_t value)
{
    return value ? value : 1;
}

/* Device attributes limit the extents of each shape (cuda.h, cuArray3DCreate). Beyond them an H200
 * with driver 580 returns CUDA_ERROR_INVALID_VALUE, whatever the number of bytes. */
struct limits {
    CUdevice_attribute width, height, depth; /* 0: has no such extent */
};
#define TEXTURE(name) CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE##name

static const struct limits line = {TEXTURE(1D_WIDTH), 0, 0},
                           plane = {TEXTURE(2D_WIDTH), TEXTURE(2D_HEIGHT), 0},
                           gathered = {TEXTURE(2D_GATHER_WIDTH), TEXTURE(2D_GATHER_HEIGHT), 0},
                           space = {TEXTURE(3D_WIDTH), TEXTURE(3D_HEIGHT), TEXTURE(3D_DEPTH)},
                           deep_space = {TEXTURE(3D_WIDTH_ALTERNATE), TEXTURE(3D_HEIGHT_ALTERNATE),
                                         TEXTURE(3D_DEPTH_ALTERNATE)},
                           lines = {TEXTURE(1D_LAYERED_WIDTH), 0, TEXTURE(1D_LAYERED_LAYERS)},
                           planes = {TEXTURE(2D_LAYERED_WIDTH), TEXTURE(2D_LAYERED_HEIGHT),
                                     TEXTURE(2D_LAYERED_LAYERS)},
                           cubes = {TEXTURE(CUBEMAP_LAYERED_WIDTH), TEXTURE(CUBEMAP_LAYERED_WIDTH),
                                    TEXTURE(CUBEMAP_LAYERED_LAYERS)};

static bool is_within(const struct sim_device *device, size_t extent, CUdevice_attribute limit)
{
    return limit ? extent >= 1 && extent <= (size_t)sim_attribute(device, limit) : extent == 0;
}

static bool fits(const struct sim_device *device, const CUDA_ARRAY3D_DESCRIPTOR *d,
                 const struct limits *limits)
{
    return is_within(device, d->Width, limits->width) &&
           is_within(device, d->Height, limits->height) &&
           is_within(device, d->Depth, limits->depth);
}

static bool has_extents(const struct sim_device *device, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    if (d->Flags & CUDA_ARRAY3D_CUBEMAP) {
        bool layered = d->Flags & CUDA_ARRAY3D_LAYERED;
        return d->Width == d->Height && (layered ? d->Depth % 6 == 0 : d->Depth == 6) &&
               fits(device, d, &cubes);
    }
    if (d->Flags & CUDA_ARRAY3D_LAYERED) {
        return fits(device, d, d->Height ? &planes : &lines);
    }
    if (d->Depth) {
        return fits(device, d, &space) || fits(device, d, &deep_space);
    }
    return fits(device, d,
                !d->Height                               ? &line
                : d->Flags & CUDA_ARRAY3D_TEXTURE_GATHER ? &gathered
                                                         : &plane);
}

static CUresult check_descriptor(const struct sim_device *device, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    bool channels = d->NumChannels == 1 || d->NumChannels == 2 || d->NumChannels == 4;
    return format_bytes(d->Format) && channels && has_extents(device, d) ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_VALUE;
}

static void set_shape(CUarray array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned level)
{
    array->descriptor = *descriptor;
    array->descriptor.Width = at_least_one(descriptor->Width >> level);
    array->descriptor.Height = descriptor->Height ? at_least_one(descriptor->Height >> level) : 0;
    bool layered = descriptor->Flags & CUDA_ARRAY3D_LAYERED;
    array->descriptor.Depth = layered || !descriptor->Depth
                                  ? descriptor->Depth
                                  : at_least_one(descriptor->Depth >> level);
    array->row_bytes =
        array->descriptor.Width * format_bytes(descriptor->Format) * descriptor->NumChannels;
    array->rows = at_least_one(array->descriptor.Height);
    array->slices = at_least_one(array->descriptor.Depth);
}

static size_t array_bytes(const struct CUarray_st *array)
{
    return array->row_bytes * array->rows * array->slices;
}

static CUresult create(CUarray *result, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    SIM_CURRENT(context);
    CUresult status = sim_capture_check_unsafe();
    if (status == CUDA_SUCCESS) {
        status = result ? check_descriptor(context->device, descriptor) : CUDA_ERROR_INVALID_VALUE;
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    CUarray array = sim_object_new(&sim_arrays);
    if (!array) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    set_shape(array, descriptor, 0);
    status = sim_device_memory_new(context, array_bytes(array), &array->range);
    if (status != CUDA_SUCCESS) {
        sim_object_free(&sim_arrays, array);
        return status;
    }
    array->range->of_library = true;
    array->range->array = array;
    array->address = array->range->address;
    *result = array;
    return CUDA_SUCCESS;
}

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
    SIM_ENTER(cuArrayCreate_v2);
    SIM_CURRENT(context);
    (void)context;
    if (!pAllocateArray) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_ARRAY3D_DESCRIPTOR wide = {.Width = pAllocateArray->Width,
                                    .Height = pAllocateArray->Height,
                                    .Format = pAllocateArray->Format,
                                    .NumChannels = pAllocateArray->NumChannels};
    return create(pHandle, &wide);
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
    SIM_ENTER(cuArray3DCreate_v2);
    SIM_CURRENT(context);
    (void)context;
    return pAllocateArray ? create(pHandle, pAllocateArray) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    SIM_ENTER(cuArrayGetDescriptor_v2);
    if (!sim_array_is_valid(hArray)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!pArrayDescriptor) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR){.Width = hArray->descriptor.Width,
                                                .Height = hArray->descriptor.Height,
                                                .Format = hArray->descriptor.Format,
                                                .NumChannels = hArray->descriptor.NumChannels};
    return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    SIM_ENTER(cuArray3DGetDescriptor_v2);
    if (!sim_array_is_valid(hArray)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!pArrayDescriptor) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pArrayDescriptor = hArray->descriptor;
    return CUDA_SUCCESS;
}

void sim_array_forget(CUarray array)
{
    struct CUmipmappedArray_st *mipmap = array->mipmap;
    if (!mipmap) {
        sim_object_free(&sim_arrays, array);
        return;
    }
    for (unsigned i = 0; i < mipmap->levels; i++) {
        sim_object_free(&sim_arrays, mipmap->level[i]);
    }
    sim_object_free(&sim_mipmaps, mipmap);
}

CUresult cuArrayDestroy(CUarray hArray)
{
    SIM_ENTER(cuArrayDestroy);
    if (!sim_array_is_valid(hArray) || hArray->mipmap) {
        return CUDA_ERROR_INVALID_HANDLE; /* levels are destroyed with their mipmapped array */
    }
    struct sim_range *range = hArray->range;
    sim_wait_device(range->device);
    sim_range_free(range);
    return CUDA_SUCCESS;
}

static CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *result, size_t bytes, CUdevice device)
{
    if (!sim_device_of(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!result) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *result = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = bytes, .alignment = 512};
    return CUDA_SUCCESS;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
                                      CUarray array, CUdevice device)
{
    SIM_ENTER(cuArrayGetMemoryRequirements);
    return sim_array_is_valid(array) ? requirements(memoryRequirements, array_bytes(array), device)
                                     : CUDA_ERROR_INVALID_HANDLE;
}

/* Planes belong to multi-planar formats, which no array of the simulated GPU has. */
CUresult cuArrayGetPlane(CUarray *pPlaneArray, CUarray hArray, unsigned int planeIdx)
{
    SIM_ENTER(cuArrayGetPlane);
    return sim_array_is_valid(hArray) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- mipmapped arrays
 * ---------------------------------------------------------------------------- */

static CUresult make_levels(CUmipmappedArray mipmap, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                            unsigned levels, size_t *bytes)
{
    *bytes = 0;
    for (; mipmap->levels < levels; mipmap->levels++) {
        CUarray array = sim_object_new(&sim_arrays);
        if (!array) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        set_shape(array, descriptor, mipmap->levels);
        array->mipmap = mipmap;
        array->address = (char *)*bytes; /* an offset until the memory is there */
        *bytes += (array_bytes(array) + 511) / 512 * 512;
        mipmap->level[mipmap->levels] = array;
    }
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                unsigned int numMipmapLevels)
{
    SIM_ENTER(cuMipmappedArrayCreate);
    SIM_CURRENT(context);
    if (!pHandle || !pMipmappedArrayDesc || numMipmapLevels == 0 ||
        check_descriptor(context->device, pMipmappedArrayDesc) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUmipmappedArray mipmap = sim_object_new(&sim_mipmaps);
    if (!mipmap) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    size_t bytes;
    unsigned levels = numMipmapLevels < MAX_LEVELS ? numMipmapLevels : MAX_LEVELS;
    CUresult status = make_levels(mipmap, pMipmappedArrayDesc, levels, &bytes);
    if (status == CUDA_SUCCESS) {
        status = sim_device_memory_new(context, bytes, &mipmap->range);
    }
    if (status != CUDA_SUCCESS) {
        for (unsigned i = 0; i < mipmap->levels; i++) {
            sim_object_free(&sim_arrays, mipmap->level[i]);
        }
        sim_object_free(&sim_mipmaps, mipmap);
        return status;
    }
    for (unsigned i = 0; i < mipmap->levels; i++) {
        mipmap->level[i]->address = mipmap->range->address + (size_t)mipmap->level[i]->address;
    }
    mipmap->range->of_library = true;
    mipmap->range->array = mipmap->level[0];
    *pHandle = mipmap;
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray hMipmappedArray,
                                  unsigned int level)
{
    SIM_ENTER(cuMipmappedArrayGetLevel);
    if (!sim_object_is(&sim_mipmaps, hMipmappedArray)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!pLevelArray || level >= hMipmappedArray->levels) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pLevelArray = hMipmappedArray->level[level];
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
                                               CUmipmappedArray mipmap, CUdevice device)
{
    SIM_ENTER(cuMipmappedArrayGetMemoryRequirements);
    return sim_object_is(&sim_mipmaps, mipmap)
               ? requirements(memoryRequirements, mipmap->range->bytes, device)
               : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
    SIM_ENTER(cuMipmappedArrayDestroy);
    if (!sim_object_is(&sim_mipmaps, hMipmappedArray)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct sim_range *range = hMipmappedArray->range;
    sim_wait_device(range->device);
    sim_range_free(range);
    return CUDA_SUCCESS;
}

/* ---- textures and surfaces: their descriptions are kept, nothing else ------------------------ */

static struct sim_texture *texture_of(unsigned long long handle, bool is_surface)
{
    struct sim_texture *texture = (struct sim_texture *)(uintptr_t)handle;
    return sim_object_is(&sim_textures, texture) && texture->is_surface == is_surface ? texture
                                                                                      : NULL;
}

static CUresult new_texture(unsigned long long *result, const CUDA_RESOURCE_DESC *resource,
                            const CUDA_TEXTURE_DESC *description,
                            const CUDA_RESOURCE_VIEW_DESC *view, bool is_surface)
{
    if (!result || !resource) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_texture *texture = sim_object_new(&sim_textures);
    if (!texture) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    texture->resource = *resource;
    if (description) {
        texture->texture = *description;
    }
    if (view) {
        texture->view = *view;
        texture->has_view = true;
    }
    texture->is_surface = is_surface;
    *result = (unsigned long long)(uintptr_t)texture;
    return CUDA_SUCCESS;
}

static CUresult delete_texture(unsigned long long handle, bool is_surface)
{
    struct sim_texture *texture = texture_of(handle, is_surface);
    if (!texture) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_object_free(&sim_textures, texture);
    return CUDA_SUCCESS;
}

static CUresult get_resource(CUDA_RESOURCE_DESC *result, unsigned long long handle, bool is_surface)
{
    const struct sim_texture *texture = texture_of(handle, is_surface);
    if (!result || !texture) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *result = texture->resource;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
                           const CUDA_TEXTURE_DESC *pTexDesc,
                           const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
    SIM_ENTER(cuTexObjectCreate);
    return pTexDesc ? new_texture(pTexObject, pResDesc, pTexDesc, pResViewDesc, false)
                    : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexObjectDestroy(CUtexObject texObject)
{
    SIM_ENTER(cuTexObjectDestroy);
    return delete_texture(texObject, false);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUtexObject texObject)
{
    SIM_ENTER(cuTexObjectGetResourceDesc);
    return get_resource(pResDesc, texObject, false);
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *pTexDesc, CUtexObject texObject)
{
    SIM_ENTER(cuTexObjectGetTextureDesc);
    const struct sim_texture *texture = texture_of(texObject, false);
    if (!pTexDesc || !texture) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pTexDesc = texture->texture;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *pResViewDesc,
                                        CUtexObject texObject)
{
    SIM_ENTER(cuTexObjectGetResourceViewDesc);
    const struct sim_texture *texture = texture_of(texObject, false);
    if (!pResViewDesc || !texture || !texture->has_view) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pResViewDesc = texture->view;
    return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc)
{
    SIM_ENTER(cuSurfObjectCreate);
    return new_texture(pSurfObject, pResDesc, NULL, NULL, true);
}

CUresult cuSurfObjectDestroy(CUsurfObject surfObject)
{
    SIM_ENTER(cuSurfObjectDestroy);
    return delete_texture(surfObject, true);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUsurfObject surfObject)
{
    SIM_ENTER(cuSurfObjectGetResourceDesc);
    return get_resource(pResDesc, surfObject, true);
}
