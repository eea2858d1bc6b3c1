/* SPDX-License-Identifier: Apache-2.0 */
/* Which arrays a device can have at all, whatever it has room for. */
#ifndef MEMSHIM_SHIM_HOOKS_ARRAY_SHAPES_H
#define MEMSHIM_SHIM_HOOKS_ARRAY_SHAPES_H

#include "shim/device/device.h"

/* Whether a descriptor meets what cuda.h says of channels and extents (cuArray3DCreate); what the
 * device does not tell counts as met. */
bool ms_array_shape_is_sound(const struct ms_device *device,
                             const CUDA_ARRAY3D_DESCRIPTOR_v2 *descriptor);

#endif
