/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent networks of cuDNN's double: the exact place of each weight in the packed memory, and a
 * bound of the work and reserve space that a call takes, because cuDNN's own figures are not
 * public.
 *
 * The weights of a pseudo-layer (layer x direction) are contiguous: the input's matrices of all
 * gates, the recurrent ones, the projection's; then come the biases of all pseudo-layers in that
 * order. Callers ask for each one, and only need those of one kind to be neighbours.
 *
 * The bound, for T steps of a batch of B, H hidden units, G gates, L pseudo-layers, D directions
 * and E bytes an element: the reserve space keeps, for each pseudo-layer and step, its gates, its
 * cell, its output and the dropped-out output: T*B*H*(G+3)*L*E; the work space has the gates of one
 * layer and their gradients, and another copy of the weights in the order of the kernels:
 * T*B*H*G*2*D*E + weights. */
#include "cudnn_word.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* Values of cudnnStatus_t, cudnnRNNMode_t, cudnnDirectionMode_t, cudnnRNNBiasMode_t and
 * cudnnForwardMode_t, as in cudnn_graph.h, cudnn_ops.h and cudnn_adv.h. */
typedef enum { SUCCESS = 0, BAD_PARAM = 2000, ALLOC_FAILED = 4003 } rnn_status_t;
enum { CELL_LSTM = 2, CELL_GRU = 3 };
enum { BIDIRECTIONAL = 1 };
enum { NO_BIAS = 0 };
enum { TRAINING = 1 };

#define DIMS_MAX 8

typedef struct {
    int type, count;
    int dims[DIMS_MAX], strides[DIMS_MAX];
} tensor_t;

typedef struct {
    int cell, bias, direction, type;
    int64_t input, hidden, projection, layers;
} rnn_t;

typedef struct {
    int64_t steps, batch;
} data_t;

/* ---- descriptors ----------------------------------------------------------------------------- */

#define DEFINE_OBJECT(what, type)                                \
    EXPORT rnn_status_t cudnnCreate##what(typeof(type) **object) \
    {                                                            \
        *object = calloc(1, sizeof(type));                       \
        return *object ? SUCCESS : ALLOC_FAILED;                 \
    }                                                            \
    EXPORT rnn_status_t cudnnDestroy##what(typeof(type) *object) \
    {                                                            \
        free(object);                                            \
        return SUCCESS;                                          \
    }

DEFINE_OBJECT(TensorDescriptor, tensor_t)
DEFINE_OBJECT(RNNDescriptor, rnn_t)
DEFINE_OBJECT(RNNDataDescriptor, data_t)

EXPORT rnn_status_t cudnnSetTensorNdDescriptor(tensor_t *tensor, int type, int count,
                                               const int *dims, const int *strides)
{
    if (!tensor || count < 0 || count > DIMS_MAX) {
        return BAD_PARAM;
    }
    *tensor = (tensor_t){.type = type, .count = count};
    memcpy(tensor->dims, dims, (size_t)count * sizeof(int));
    memcpy(tensor->strides, strides, (size_t)count * sizeof(int));
    return SUCCESS;
}

EXPORT rnn_status_t cudnnGetTensorNdDescriptor(const tensor_t *tensor, int wanted, int *type,
                                               int *count, int *dims, int *strides)
{
    const int given = wanted < tensor->count ? wanted : tensor->count;
    *type = tensor->type;
    *count = tensor->count;
    memcpy(dims, tensor->dims, (size_t)(given > 0 ? given : 0) * sizeof(int));
    memcpy(strides, tensor->strides, (size_t)(given > 0 ? given : 0) * sizeof(int));
    return SUCCESS;
}

EXPORT rnn_status_t cudnnSetRNNDescriptor_v8(rnn_t *rnn, int algorithm, int cell, int bias,
                                             int direction, int input_mode, int type, int precision,
                                             int math, int32_t input, int32_t hidden,
                                             int32_t projection, int32_t layers, void *dropout,
                                             uint32_t flags)
{
    (void)algorithm, (void)input_mode, (void)precision, (void)math, (void)dropout, (void)flags;
    *rnn = (rnn_t){cell, bias, direction, type, input, hidden, projection, layers};
    return SUCCESS;
}

EXPORT rnn_status_t cudnnSetRNNDataDescriptor(data_t *data, int type, int layout, int steps,
                                              int batch, int width, const int *lengths,
                                              void *padding)
{
    (void)type, (void)layout, (void)width, (void)lengths, (void)padding;
    *data = (data_t){steps, batch};
    return SUCCESS;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static int64_t element_bytes(const rnn_t *rnn)
{
    static const uint8_t bytes[] = {4, 8, 2, 1, 4, 4, 1, 4, 4, 2}; /* by cudnnDataType_t */
    return rnn->type >= 0 && rnn->type < (int)sizeof(bytes) ? bytes[rnn->type] : 4;
}

static int64_t gates(const rnn_t *rnn)
{
    return rnn->cell == CELL_LSTM ? 4 : rnn->cell == CELL_GRU ? 3 : 1;
}

static int64_t directions(const rnn_t *rnn)
{
    return rnn->direction == BIDIRECTIONAL ? 2 : 1;
}

static bool projects(const rnn_t *rnn)
{
    return rnn->projection > 0 && rnn->projection != rnn->hidden;
}

static int64_t output(const rnn_t *rnn)
{
    return projects(rnn) ? rnn->projection : rnn->hidden;
}

static int64_t input_of(const rnn_t *rnn, int64_t pseudo_layer)
{
    return pseudo_layer < directions(rnn) ? rnn->input : output(rnn) * directions(rnn);
}

/* Elements of the matrices of one pseudo-layer. */
static int64_t matrices(const rnn_t *rnn, int64_t pseudo_layer)
{
    return gates(rnn) * rnn->hidden * (input_of(rnn, pseudo_layer) + output(rnn)) +
           (projects(rnn) ? output(rnn) * rnn->hidden : 0);
}

static int64_t all_matrices(const rnn_t *rnn, int64_t pseudo_layers)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < pseudo_layers; i++) {
        sum += matrices(rnn, i);
    }
    return sum;
}

static int64_t biases(const rnn_t *rnn)
{
    return rnn->bias == NO_BIAS ? 0 : 2 * gates(rnn) * rnn->hidden;
}

static int64_t weights_bytes(const rnn_t *rnn)
{
    const int64_t pseudo_layers = rnn->layers * directions(rnn);
    return (all_matrices(rnn, pseudo_layers) + biases(rnn) * pseudo_layers) * element_bytes(rnn);
}

EXPORT rnn_status_t cudnnGetRNNWeightSpaceSize(void *handle, const rnn_t *rnn, size_t *bytes)
{
    (void)handle;
    *bytes = (size_t)weights_bytes(rnn);
    return SUCCESS;
}

EXPORT rnn_status_t cudnnGetRNNTempSpaceSizes(void *handle, const rnn_t *rnn, int mode,
                                              const data_t *data, size_t *work, size_t *reserve)
{
    (void)handle;
    const int64_t cells = data->steps * data->batch * rnn->hidden * element_bytes(rnn);
    const int64_t pseudo_layers = rnn->layers * directions(rnn);
    const int64_t work_bytes = cells * gates(rnn) * 2 * directions(rnn) + weights_bytes(rnn);
    const int64_t reserve_bytes = mode == TRAINING ? cells * (gates(rnn) + 3) * pseudo_layers : 0;
    simcudnn_leave_word((simcudnn_spaces_t){.work = work_bytes, .reserve = reserve_bytes});
    if (work) {
        *work = (size_t)work_bytes;
    }
    if (reserve) {
        *reserve = (size_t)reserve_bytes;
    }
    return SUCCESS;
}

/* ---- the place of a weight ------------------------------------------------------------------- */

static void describe(tensor_t *tensor, const rnn_t *rnn, int64_t rows, int64_t columns)
{
    if (tensor) {
        *tensor = (tensor_t){.type = rnn->type,
                             .count = rows > 0 ? 3 : 0,
                             .dims = {1, (int)rows, (int)columns},
                             .strides = {(int)(rows * columns), (int)columns, 1}};
    }
}

/* Callers ask for the matrix or for the bias; the other argument is NULL. linear: the gates of the
 * input, then those of the recurrence; the next one is the projection. */
static int64_t matrix_at(const rnn_t *rnn, int64_t pseudo_layer, int64_t linear, int64_t *rows,
                         int64_t *columns)
{
    const int64_t in = input_of(rnn, pseudo_layer), out = output(rnn);
    const int64_t at = all_matrices(rnn, pseudo_layer), count = gates(rnn);
    *rows = rnn->hidden;
    if (linear < count) {
        *columns = in;
        return at + linear * rnn->hidden * in;
    }
    if (linear < 2 * count) {
        *columns = out;
        return at + count * rnn->hidden * in + (linear - count) * rnn->hidden * out;
    }
    *rows = out;
    *columns = rnn->hidden;
    return at + count * rnn->hidden * (in + out);
}

EXPORT rnn_status_t cudnnGetRNNWeightParams(void *handle, const rnn_t *rnn, int32_t pseudo_layer,
                                            size_t bytes, const void *weights, int32_t linear,
                                            tensor_t *matrix, void **matrix_place, tensor_t *bias,
                                            void **bias_place)
{
    (void)handle;
    const int64_t each = element_bytes(rnn), pseudo_layers = rnn->layers * directions(rnn);
    const bool projection = linear == 2 * gates(rnn);
    int64_t rows, columns, at;
    if (pseudo_layer < 0 || pseudo_layer >= pseudo_layers || linear < 0 ||
        linear > 2 * gates(rnn) || (projection && !projects(rnn)) ||
        bytes < (size_t)weights_bytes(rnn)) {
        return BAD_PARAM;
    }
    at = matrix_at(rnn, pseudo_layer, linear, &rows, &columns);
    describe(matrix, rnn, rows, columns);
    if (matrix_place) {
        *matrix_place = (char *)weights + at * each;
    }
    at = all_matrices(rnn, pseudo_layers) + biases(rnn) * pseudo_layer + linear * rnn->hidden;
    describe(bias, rnn, biases(rnn) > 0 && !projection ? rnn->hidden : 0, 1);
    if (bias_place) {
        *bias_place = biases(rnn) > 0 && !projection ? (char *)weights + at * each : NULL;
    }
    return SUCCESS;
}
