/* SPDX-License-Identifier: Apache-2.0 */
/* How much work space the fastest plan for a convolution takes (cudnn_conv.c). */
#ifndef SIMGPU_CUDNN_CONV_H
#define SIMGPU_CUDNN_CONV_H

#include <stdint.h>

#define SIMCUDNN_DIMS 8

/* Numbers of cudnnBackendDescriptorType_t, as in cudnn_graph.h. */
typedef enum {
    SIMCUDNN_FORWARD = 10,
    SIMCUDNN_BACKWARD_FILTER = 11,
    SIMCUDNN_BACKWARD_DATA = 12,
} simcudnn_direction_t;

typedef struct {
    int32_t type; /* cudnnDataType_t */
    int64_t count;
    int64_t dims[SIMCUDNN_DIMS], strides[SIMCUDNN_DIMS]; /* batch, channels, then spatial
                                                            dimensions */
} simcudnn_tensor_t;

/* x: images, y: results, w: filters; in a backward direction their gradients. */
typedef struct {
    simcudnn_direction_t direction;
    simcudnn_tensor_t x, w, y;
} simcudnn_conv_t;

int64_t simcudnn_conv_workspace(const simcudnn_conv_t *conv);

#endif
