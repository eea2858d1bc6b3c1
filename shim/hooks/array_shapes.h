/* SPDX-License-Identifier: Apache-2.0 */
/* Which arrays a device can have at all, however much memory is free. */
#ifndef MEMSHIM_SHIM_HOOKS_ARRAY_SHAPES_H
#define MEMSHIM_SHIM_HOOKS_ARRAY_SHAPES_H

#include "shim/device/device.h"

/* Whether a descriptor meets cuda.h's rules on channels and extents (cuArray3DCreate). A limit that
 * the device does not report counts as met. */
bool ms_array_shape_is_sound(const struct ms_device *device,
                             const CUDA_ARRAY3D_DESCRIPTOR_v2 *descriptor);

#endif
