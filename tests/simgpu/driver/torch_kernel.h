/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of PyTorch that compute, for small tensors, the same as on a real device: those by which
 * its object collectives (all_gather_object, broadcast_object_list) find sizes and places. They
 * compare, add and sum int64, and fill and concatenate tensors of any type. And the one that only
 * takes time (torch.cuda._sleep). They are recognized by their mangled names. A kernel with another
 * name, or with arguments of an unexpected form, computes nothing. */
#ifndef SIMGPU_TORCH_KERNEL_H
#define SIMGPU_TORCH_KERNEL_H

#include "module.h"

/* If there is such a kernel, declares the parameters of the kernel of that name and sets what it
 * does. */
void sim_torch_kernel(struct sim_symbol *symbol);

#endif
