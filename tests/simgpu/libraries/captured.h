/* SPDX-License-Identifier: Apache-2.0 */
/* What a call of a library leaves in a graph. */
#ifndef SIMGPU_LIBRARIES_CAPTURED_H
#define SIMGPU_LIBRARIES_CAPTURED_H

#include <cuda.h>

/* Called where NVIDIA's library queues work. While the stream captures, the graph gets an empty
 * node: a program that captures such a call alone takes an empty graph for an error (XLA). */
void simcublas_queue(CUstream stream);

#endif
