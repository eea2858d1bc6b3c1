/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of PyTorch that compute what they compute on a real device, for small tensors: those by
 * which its object collectives (all_gather_object, broadcast_object_list) find sizes and places.
 * They compare, add and sum int64, and fill and concatenate tensors of any kind. Known by their
 * mangled names; one that has another name, or arguments that do not look like theirs, computes
 * nothing.
 */
#ifndef SIMGPU_TORCH_KERNEL_H
#define SIMGPU_TORCH_KERNEL_H

#include "module.h"

/* Declares the parameters of the kernel of that name and says what it does, where it is one. */
void sim_torch_kernel(struct sim_symbol *symbol);

#endif
