/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch opens a tensor of another process that lies in expandable segments by pidfd_open(2) and
 * pidfd_getfd(2). Where memshim switched these segments on, it also works where the kernel has or
 * allows no such call, as a tensor in a segment of cudaMalloc does. */
#ifndef MEMSHIM_SHIM_FRAMEWORKS_TORCH_DESCRIPTORS_H
#define MEMSHIM_SHIM_FRAMEWORKS_TORCH_DESCRIPTORS_H

/* Called when memshim is loaded: signal handlers and children of vfork use syscall(), too, and
 * nothing may be looked up there. */
void ms_torch_descriptors_begin(void);

#endif
