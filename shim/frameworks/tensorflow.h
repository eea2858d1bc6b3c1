/* SPDX-License-Identifier: Apache-2.0 */
/* TensorFlow's memory on CUDA devices: it is told to ask the driver for each tensor, and the
 * threads that run a function of its for the program ask in the name of the program's line. */
#ifndef MEMSHIM_SHIM_FRAMEWORKS_TENSORFLOW_H
#define MEMSHIM_SHIM_FRAMEWORKS_TENSORFLOW_H

/* The variable by which TensorFlow's allocator is chosen. */
#define MS_TENSORFLOW_VARIABLE "TF_GPU_ALLOCATOR"

/* What getenv answers for that variable, which is not set, to code at `caller`. */
char *ms_tensorflow_setting(const void *caller);

#endif
