/* SPDX-License-Identifier: Apache-2.0 */
/* TensorFlow's memory on CUDA devices. memshim makes it ask the driver for each tensor. What the
 * threads that run a tf.function allocate counts for the program's line that called it. */
#ifndef MEMSHIM_SHIM_FRAMEWORKS_TENSORFLOW_H
#define MEMSHIM_SHIM_FRAMEWORKS_TENSORFLOW_H

/* The variable that chooses TensorFlow's allocator. */
#define MS_TENSORFLOW_VARIABLE "TF_GPU_ALLOCATOR"

/* getenv's answer for that variable, which is not set, to code at `caller`. */
char *ms_tensorflow_setting(const void *caller);

#endif
