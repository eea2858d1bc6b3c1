/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of arrays, from the device attributes that cuda.h names for them. */
#include "shim/hooks/array_shapes.h"

#include "shim/driver/driver.h"

/* The device attributes that limit the extents of one kind of array; 0: no limit. */
struct limits {
    CUdevice_attribute width, height, depth;
};

/* One row of cuda.h's table: the limits in general, and with CUDA_ARRAY3D_SURFACE_LDST. */
struct array_kind {
    struct limits texture, surface;
};

#define LIMIT(name) CU_DEVICE_ATTRIBUTE_MAXIMUM_##name

static const struct array_kind line = {{LIMIT(TEXTURE1D_WIDTH), 0, 0},
                                       {LIMIT(SURFACE1D_WIDTH), 0, 0}};
static const struct array_kind plane = {{LIMIT(TEXTURE2D_WIDTH), LIMIT(TEXTURE2D_HEIGHT), 0},
                                        {LIMIT(SURFACE2D_WIDTH), LIMIT(SURFACE2D_HEIGHT), 0}};
static const struct array_kind gathered = {
    {LIMIT(TEXTURE2D_GATHER_WIDTH), LIMIT(TEXTURE2D_GATHER_HEIGHT), 0},
    {LIMIT(SURFACE2D_WIDTH), LIMIT(SURFACE2D_HEIGHT), 0}};
static const struct array_kind space = {
    {LIMIT(TEXTURE3D_WIDTH), LIMIT(TEXTURE3D_HEIGHT), LIMIT(TEXTURE3D_DEPTH)},
    {LIMIT(SURFACE3D_WIDTH), LIMIT(SURFACE3D_HEIGHT), LIMIT(SURFACE3D_DEPTH)}};
static const struct array_kind deep_space = {
    {LIMIT(TEXTURE3D_WIDTH_ALTERNATE), LIMIT(TEXTURE3D_HEIGHT_ALTERNATE),
     LIMIT(TEXTURE3D_DEPTH_ALTERNATE)},
    {LIMIT(SURFACE3D_WIDTH), LIMIT(SURFACE3D_HEIGHT), LIMIT(SURFACE3D_DEPTH)}};
static const struct array_kind lines = {
    {LIMIT(TEXTURE1D_LAYERED_WIDTH), 0, LIMIT(TEXTURE1D_LAYERED_LAYERS)},
    {LIMIT(SURFACE1D_LAYERED_WIDTH), 0, LIMIT(SURFACE1D_LAYERED_LAYERS)}};
static const struct array_kind planes = {
    {LIMIT(TEXTURE2D_LAYERED_WIDTH), LIMIT(TEXTURE2D_LAYERED_HEIGHT),
     LIMIT(TEXTURE2D_LAYERED_LAYERS)},
    {LIMIT(SURFACE2D_LAYERED_WIDTH), LIMIT(SURFACE2D_LAYERED_HEIGHT),
     LIMIT(SURFACE2D_LAYERED_LAYERS)}};
static const struct array_kind cube = {
    {LIMIT(TEXTURECUBEMAP_WIDTH), LIMIT(TEXTURECUBEMAP_WIDTH), 0},
    {LIMIT(SURFACECUBEMAP_WIDTH), LIMIT(SURFACECUBEMAP_WIDTH), 0}};
static const struct array_kind cubes = {
    {LIMIT(TEXTURECUBEMAP_LAYERED_WIDTH), LIMIT(TEXTURECUBEMAP_LAYERED_WIDTH),
     LIMIT(TEXTURECUBEMAP_LAYERED_LAYERS)},
    {LIMIT(SURFACECUBEMAP_LAYERED_WIDTH), LIMIT(SURFACECUBEMAP_LAYERED_WIDTH),
     LIMIT(SURFACECUBEMAP_LAYERED_LAYERS)}};

static bool is_within(const struct ms_device *device, uint64_t extent, CUdevice_attribute limit)
{
    int most = 0;
    return !limit ||
           ms_driver()->cuDeviceGetAttribute(&most, limit, device->ordinal) != CUDA_SUCCESS ||
           most <= 0 || (extent >= 1 && extent <= (uint64_t)most);
}

static bool are_within(const struct ms_device *device, const CUDA_ARRAY3D_DESCRIPTOR_v2 *d,
                       const struct limits *limits)
{
    return is_within(device, d->Width, limits->width) &&
           is_within(device, d->Height, limits->height) &&
           is_within(device, d->Depth, limits->depth);
}

static bool is_of(const struct ms_device *device, const CUDA_ARRAY3D_DESCRIPTOR_v2 *d,
                  const struct array_kind *kind)
{
    return are_within(device, d, &kind->texture) &&
           (!(d->Flags & CUDA_ARRAY3D_SURFACE_LDST) || are_within(device, d, &kind->surface));
}

static bool is_sound_cube(const struct ms_device *device, const CUDA_ARRAY3D_DESCRIPTOR_v2 *d)
{
    const bool layered = d->Flags & CUDA_ARRAY3D_LAYERED;
    return d->Width == d->Height && (layered ? d->Depth % 6 == 0 : d->Depth == 6) &&
           is_of(device, d, layered ? &cubes : &cube);
}

bool ms_array_shape_is_sound(const struct ms_device *device, const CUDA_ARRAY3D_DESCRIPTOR_v2 *d)
{
    if (d->NumChannels < 1 || d->NumChannels > 4) { /* 3: planar formats */
        return false;
    }
    if (d->Flags & CUDA_ARRAY3D_CUBEMAP) {
        return is_sound_cube(device, d);
    }
    if (d->Flags & CUDA_ARRAY3D_LAYERED) {
        return is_of(device, d, d->Height ? &planes : &lines);
    }
    if (d->Depth) {
        return is_of(device, d, &space) || is_of(device, d, &deep_space);
    }
    if (d->Height) {
        return is_of(device, d, d->Flags & CUDA_ARRAY3D_TEXTURE_GATHER ? &gathered : &plane);
    }
    return is_of(device, d, &line);
}
