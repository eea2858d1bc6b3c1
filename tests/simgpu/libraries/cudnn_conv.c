/* SPDX-License-Identifier: Apache-2.0 */
/* How much work space the fastest plan for a convolution of cuDNN's double takes. This is a bound,
 * because cuDNN's own figures are not public, and depend on the algorithm that its heuristic
 * chooses for a device.
 *
 * Tensor cores need the channels innermost. If they are not, as in PyTorch's default layout, the
 * algorithms for tensor cores work on copies of images, filters and result in that layout, each
 * with the channels padded to 16 bytes. The bound is the sum of the three, in every direction. If
 * the channels are innermost, or the numbers are none that tensor cores take, the bound is zero:
 * the remaining algorithms are the implicit ones. FFT and Winograd could take more.
 *
 * On an H200 the peaks of two jobs differ from those with the bound by 0.3 %
 * (docs/performance.md). */
#include "cudnn_conv.h"

#include <stdbool.h>

#define PADDED_BYTES 16
/* The dimension, for images and filters; dimension 0 of filters is the result's. */
#define CHANNELS 1

/* Numbers of cudnnDataType_t: float (as TF32, PyTorch's default for convolutions), half, bfloat16.
 */
static int64_t element_bytes(int32_t type)
{
    return type == 0 ? 4 : type == 2 || type == 9 ? 2 : 0;
}

static int64_t copied_bytes(const simcudnn_tensor_t *tensor, bool is_filter)
{
    const int64_t each = element_bytes(tensor->type);
    const int64_t pad = each > 0 ? PADDED_BYTES / each : 1;
    int64_t bytes = each;
    for (int64_t i = 0; i < tensor->count; i++) {
        const bool padded = i == CHANNELS || (is_filter && i == 0);
        bytes *= padded ? (tensor->dims[i] + pad - 1) / pad * pad : tensor->dims[i];
    }
    return bytes;
}

int64_t simcudnn_conv_workspace(const simcudnn_conv_t *conv)
{
    if (conv->x.strides[CHANNELS] == 1 || element_bytes(conv->x.type) == 0) {
        return 0;
    }
    return copied_bytes(&conv->x, false) + copied_bytes(&conv->w, true) +
           copied_bytes(&conv->y, false);
}
