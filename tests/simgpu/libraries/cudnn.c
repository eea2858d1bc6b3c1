/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of cuDNN's double that must return something: versions, handles, error texts, the
 * choice of an algorithm, and the graph interface. There, a caller describes a convolution or an
 * attention by descriptors with attributes, asks for an engine, and executes a plan.
 *
 * Descriptors remember what they were given; executing a plan does nothing. The engine heuristic
 * finds one engine, and of a convolution that takes work space a second, slower one without: a
 * caller that gets no work space goes on to that. Its fallback mode knows the second alone.
 * The workspace of a plan: cudnn_conv.c. Recurrent networks: cudnn_rnn.c. */
#include "cudnn_conv.h"
#include "cudnn_word.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A double that is made for a program's own libraries replaces this by their version. */
__attribute__((weak)) const int simcudnn_version = 92600;

#define EXPORT __attribute__((visibility("default")))

/* Values of cudnnStatus_t, as in cudnn_graph.h. */
typedef enum {
    STATUS_SUCCESS = 0,
    STATUS_BAD_PARAM = 2000,
    STATUS_NOT_SUPPORTED = 3000,
    STATUS_ALLOC_FAILED = 4003,
} status_t;

typedef struct {
    CUstream stream;
} handle_t;

EXPORT size_t cudnnGetVersion(void)
{
    return simcudnn_version;
}

EXPORT size_t cudnnGetCudartVersion(void)
{
    return CUDA_VERSION;
}

EXPORT status_t cudnnGetProperty(int which, int *value)
{
    const int parts[] = {simcudnn_version / 10000, simcudnn_version / 100 % 100,
                         simcudnn_version % 100};
    if (which < 0 || which > 2) {
        return STATUS_BAD_PARAM;
    }
    *value = parts[which];
    return STATUS_SUCCESS;
}

EXPORT const char *cudnnGetErrorString(status_t status)
{
    switch (status) {
    case STATUS_SUCCESS:
        return "CUDNN_STATUS_SUCCESS";
    case STATUS_BAD_PARAM:
        return "CUDNN_STATUS_BAD_PARAM";
    case STATUS_NOT_SUPPORTED:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    default:
        return "simulated cuDNN failure";
    }
}

EXPORT void cudnnGetLastErrorString(char *message, size_t bytes)
{
    if (bytes > 0) {
        message[0] = '\0';
    }
}

EXPORT status_t cudnnCreate(handle_t **handle)
{
    *handle = calloc(1, sizeof(**handle));
    return *handle ? STATUS_SUCCESS : STATUS_ALLOC_FAILED;
}

EXPORT status_t cudnnDestroy(handle_t *handle)
{
    free(handle);
    return STATUS_SUCCESS;
}

EXPORT status_t cudnnSetStream(handle_t *handle, CUstream stream)
{
    handle->stream = stream;
    return STATUS_SUCCESS;
}

EXPORT status_t cudnnGetStream(const handle_t *handle, CUstream *stream)
{
    *stream = handle->stream;
    return STATUS_SUCCESS;
}

/* Descriptors of the older interface are opaque, and nobody reads anything from them. */
#define DEFINE_OBJECT(what)                                    \
    EXPORT status_t cudnnCreate##what(void **object)           \
    {                                                          \
        *object = calloc(1, 64);                               \
        return *object ? STATUS_SUCCESS : STATUS_ALLOC_FAILED; \
    }                                                          \
    EXPORT status_t cudnnDestroy##what(void *object)           \
    {                                                          \
        free(object);                                          \
        return STATUS_SUCCESS;                                 \
    }

DEFINE_OBJECT(FilterDescriptor)
DEFINE_OBJECT(ConvolutionDescriptor)
DEFINE_OBJECT(ActivationDescriptor)
DEFINE_OBJECT(PoolingDescriptor)
DEFINE_OBJECT(DropoutDescriptor)
DEFINE_OBJECT(CTCLossDescriptor)
DEFINE_OBJECT(SpatialTransformerDescriptor)

/* ---- algorithms and sizes of the older interface ---- */

/* The layout of cudnnConvolutionFwdAlgoPerf_t and of its two siblings. */
typedef struct {
    int algorithm;
    status_t status;
    float time_ms;
    size_t workspace_bytes;
    int determinism;
    int math_type;
    int reserved[3];
} performance_t;

static status_t one_algorithm(int wanted, int *found, performance_t *results)
{
    if (wanted < 1) {
        return STATUS_BAD_PARAM;
    }
    /* Number 1 is a deterministic algorithm in all three directions. */
    results[0] = (performance_t){.algorithm = 1, .determinism = 1};
    *found = 1;
    return STATUS_SUCCESS;
}

#define DEFINE_CHOICE(direction)                                                                  \
    EXPORT status_t cudnnGetConvolution##direction##Algorithm_v7(                                 \
        handle_t *handle, void *a, void *b, void *convolution, void *c, int wanted, int *found,   \
        performance_t *results)                                                                   \
    {                                                                                             \
        (void)handle, (void)a, (void)b, (void)convolution, (void)c;                               \
        return one_algorithm(wanted, found, results);                                             \
    }                                                                                             \
    EXPORT status_t cudnnFindConvolution##direction##AlgorithmEx(                                 \
        handle_t *handle, void *a, const void *a_data, void *b, const void *b_data,               \
        void *convolution, void *c, void *c_data, int wanted, int *found, performance_t *results, \
        void *workspace, size_t workspace_bytes)                                                  \
    {                                                                                             \
        (void)handle, (void)a, (void)a_data, (void)b, (void)b_data, (void)convolution, (void)c;   \
        (void)c_data, (void)workspace, (void)workspace_bytes;                                     \
        return one_algorithm(wanted, found, results);                                             \
    }                                                                                             \
    EXPORT status_t cudnnGetConvolution##direction##WorkspaceSize(                                \
        handle_t *handle, void *a, void *b, void *convolution, void *c, int algorithm,            \
        size_t *bytes)                                                                            \
    {                                                                                             \
        (void)handle, (void)a, (void)b, (void)convolution, (void)c, (void)algorithm;              \
        *bytes = 0;                                                                               \
        return STATUS_SUCCESS;                                                                    \
    }

DEFINE_CHOICE(Forward)
DEFINE_CHOICE(BackwardData)
DEFINE_CHOICE(BackwardFilter)

EXPORT status_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    handle_t *handle, int mode, int operation, void *x, void *z, void *y, void *scale,
    void *activation, size_t *bytes)
{
    (void)handle, (void)mode, (void)operation, (void)x, (void)z, (void)y, (void)scale;
    (void)activation;
    *bytes = 0;
    return STATUS_SUCCESS;
}

EXPORT status_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(handle_t *handle, int mode,
                                                                  int operation, void *x, void *y,
                                                                  void *dy, void *dz, void *dx,
                                                                  void *scale, void *activation,
                                                                  size_t *bytes)
{
    (void)handle, (void)mode, (void)operation, (void)x, (void)y, (void)dy, (void)dz, (void)dx;
    (void)scale, (void)activation;
    *bytes = 0;
    return STATUS_SUCCESS;
}

EXPORT status_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(handle_t *handle, int mode,
                                                                     int operation,
                                                                     void *activation, void *x,
                                                                     size_t *bytes)
{
    (void)handle, (void)mode, (void)operation, (void)activation, (void)x;
    *bytes = 0;
    return STATUS_SUCCESS;
}

EXPORT status_t cudnnDropoutGetStatesSize(handle_t *handle, size_t *bytes)
{
    (void)handle;
    *bytes = 0;
    return STATUS_SUCCESS;
}

/* ---- the graph interface ---- */

/* Numbers of cudnnBackendAttributeType_t, cudnnBackendAttributeName_t and
 * cudnnBackendDescriptorType_t in cudnn_graph.h. */
enum {
    TYPE_HANDLE = 0,
    TYPE_INT64 = 3,
    TYPE_DOUBLE = 5,
    TYPE_VOID_PTR = 6,
    TYPE_BACKEND_DESCRIPTOR = 15,
    ATTRIBUTE_HEURISTIC_MODE = 200,
    ATTRIBUTE_HEURISTIC_GRAPH = 201,
    ATTRIBUTE_HEURISTIC_RESULTS = 202,
    ATTRIBUTE_CONFIG_ENGINE = 300,
    ATTRIBUTE_CONFIG_WORKSPACE = 303,
    ATTRIBUTE_CONFIG_SHARED_MEMORY = 304,
    ATTRIBUTE_PLAN_CONFIG = 401,
    ATTRIBUTE_PLAN_WORKSPACE = 402,
    ATTRIBUTE_GRAPH_OPERATIONS = 801,
    ATTRIBUTE_TENSOR_TYPE = 901,
    ATTRIBUTE_TENSOR_DIMENSIONS = 902,
    ATTRIBUTE_TENSOR_STRIDES = 903,
    ATTRIBUTE_PACK_WORKSPACE = 1003,
    ATTRIBUTE_ENGINE_GRAPH = 1300,
    ATTRIBUTE_ENGINE_INDEX = 1301,
};

#define HEURISTIC_FALLBACK 2 /* of cudnnBackendHeurMode_t */

/* How much longer a slower plan takes than any noise in a comparison of plans. */
#define SLOWER_NS UINT64_C(1000000000)

/* The simulated driver's: lets so much time pass for its events, at once. */
__attribute__((weak)) void simgpu_pass_ns(uint64_t ns);

typedef struct attribute_t {
    struct attribute_t *next;
    int name;
    int type;
    int64_t count;
    unsigned char values[]; /* count elements */
} attribute_t;

typedef struct {
    int type;
    attribute_t *attributes;
    int64_t workspace_bytes; /* once it is finalized */
    int64_t fastest_bytes;   /* what the fastest plan for the same operation takes */
} descriptor_t;

static size_t element_bytes(int type)
{
    switch (type) {
    case TYPE_HANDLE:
    case TYPE_INT64:
    case TYPE_DOUBLE:
    case TYPE_VOID_PTR:
    case TYPE_BACKEND_DESCRIPTOR:
        return 8;
    case 2:  /* boolean */
    case 24: /* char */
        return 1;
    case 26: /* fraction: two int64 */
        return 16;
    default: /* enumerations, int32, float */
        return 4;
    }
}

EXPORT status_t cudnnBackendCreateDescriptor(int type, descriptor_t **result)
{
    descriptor_t *descriptor = calloc(1, sizeof(*descriptor));
    if (!descriptor) {
        return STATUS_ALLOC_FAILED;
    }
    descriptor->type = type;
    *result = descriptor;
    return STATUS_SUCCESS;
}

EXPORT status_t cudnnBackendDestroyDescriptor(descriptor_t *descriptor)
{
    while (descriptor && descriptor->attributes) {
        attribute_t *attribute = descriptor->attributes;
        descriptor->attributes = attribute->next;
        free(attribute);
    }
    free(descriptor);
    return STATUS_SUCCESS;
}

EXPORT status_t cudnnBackendSetAttribute(descriptor_t *descriptor, int name, int type,
                                         int64_t count, const void *values)
{
    if (count < 0 || (count > 0 && !values)) {
        return STATUS_BAD_PARAM;
    }
    size_t bytes = (size_t)count * element_bytes(type);
    attribute_t *attribute = malloc(sizeof(*attribute) + bytes);
    if (!attribute) {
        return STATUS_ALLOC_FAILED;
    }
    attribute->name = name;
    attribute->type = type;
    attribute->count = count;
    if (bytes > 0) {
        memcpy(attribute->values, values, bytes);
    }
    /* Newest first: setting an attribute again hides the older value. */
    attribute->next = descriptor->attributes;
    descriptor->attributes = attribute;
    return STATUS_SUCCESS;
}

static const attribute_t *find(const descriptor_t *descriptor, int name)
{
    const attribute_t *attribute = descriptor ? descriptor->attributes : NULL;
    while (attribute && attribute->name != name) {
        attribute = attribute->next;
    }
    return attribute;
}

/* The descriptor that an attribute names; the first if there are several. */
static descriptor_t *named(const descriptor_t *descriptor, int name)
{
    const attribute_t *attribute = find(descriptor, name);
    descriptor_t *found = NULL;
    if (attribute && attribute->type == TYPE_BACKEND_DESCRIPTOR && attribute->count > 0) {
        memcpy(&found, attribute->values, sizeof(descriptor_t *));
    }
    return found;
}

static int64_t read_numbers(const descriptor_t *descriptor, int name, int64_t *numbers)
{
    const attribute_t *attribute = find(descriptor, name);
    if (!attribute || attribute->type != TYPE_INT64 || attribute->count > SIMCUDNN_DIMS) {
        return 0;
    }
    memcpy(numbers, attribute->values, (size_t)attribute->count * sizeof(*numbers));
    return attribute->count;
}

static bool read_tensor(const descriptor_t *descriptor, simcudnn_tensor_t *tensor)
{
    const attribute_t *type = find(descriptor, ATTRIBUTE_TENSOR_TYPE);
    if (!type) {
        return false;
    }
    memcpy(&tensor->type, type->values, sizeof(tensor->type));
    tensor->count = read_numbers(descriptor, ATTRIBUTE_TENSOR_DIMENSIONS, tensor->dims);
    return tensor->count > 2 &&
           read_numbers(descriptor, ATTRIBUTE_TENSOR_STRIDES, tensor->strides) == tensor->count;
}

/* The workspace of a convolution; other operations take none here. */
static int64_t workspace_of(const descriptor_t *operation)
{
    /* x, w, y of each direction, as in cudnnBackendAttributeName_t */
    static const struct {
        simcudnn_direction_t direction;
        int x, w, y;
    } names[] = {{SIMCUDNN_FORWARD, 704, 703, 705},
                 {SIMCUDNN_BACKWARD_FILTER, 716, 715, 717},
                 {SIMCUDNN_BACKWARD_DATA, 710, 709, 711}};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        simcudnn_conv_t conv = {.direction = names[i].direction};
        if (operation->type == (int)names[i].direction &&
            read_tensor(named(operation, names[i].x), &conv.x) &&
            read_tensor(named(operation, names[i].w), &conv.w) &&
            read_tensor(named(operation, names[i].y), &conv.y)) {
            return simcudnn_conv_workspace(&conv);
        }
    }
    return 0;
}

/* The descriptors that it is made from may be destroyed afterwards. */
EXPORT status_t cudnnBackendFinalize(descriptor_t *descriptor)
{
    static const int made_of[] = {ATTRIBUTE_GRAPH_OPERATIONS, ATTRIBUTE_HEURISTIC_GRAPH,
                                  ATTRIBUTE_ENGINE_GRAPH, ATTRIBUTE_CONFIG_ENGINE,
                                  ATTRIBUTE_PLAN_CONFIG};
    if (!descriptor) {
        return STATUS_BAD_PARAM;
    }
    descriptor->workspace_bytes = descriptor->fastest_bytes = workspace_of(descriptor);
    for (size_t i = 0; i < sizeof(made_of) / sizeof(*made_of); i++) {
        const descriptor_t *part = named(descriptor, made_of[i]);
        if (part) {
            descriptor->workspace_bytes = part->workspace_bytes;
            descriptor->fastest_bytes = part->fastest_bytes;
        }
    }
    return STATUS_SUCCESS;
}

static bool answers_zero(int name)
{
    return name == ATTRIBUTE_CONFIG_SHARED_MEMORY || name == ATTRIBUTE_ENGINE_INDEX;
}

static bool asks_for_workspace(int name)
{
    return name == ATTRIBUTE_CONFIG_WORKSPACE || name == ATTRIBUTE_PLAN_WORKSPACE;
}

static bool finds_fastest(const descriptor_t *heuristic)
{
    const attribute_t *mode = find(heuristic, ATTRIBUTE_HEURISTIC_MODE);
    return !mode || mode->values[0] != HEURISTIC_FALLBACK;
}

static int64_t count_offers(const descriptor_t *heuristic)
{
    return finds_fastest(heuristic) && heuristic->fastest_bytes > 0 ? 2 : 1;
}

/* The configurations that the heuristic has to offer, the fastest first, in objects that the
 * caller has made. */
static int64_t offer(const descriptor_t *heuristic, descriptor_t *const *configs, int64_t wanted)
{
    int64_t count = 0;
    for (; count < wanted && count < count_offers(heuristic) && configs[count]; count++) {
        const bool is_fastest = count == 0 && finds_fastest(heuristic);
        configs[count]->workspace_bytes = is_fastest ? heuristic->fastest_bytes : 0;
        configs[count]->fastest_bytes = heuristic->fastest_bytes;
    }
    return count;
}

EXPORT status_t cudnnBackendGetAttribute(const descriptor_t *descriptor, int name, int type,
                                         int64_t wanted, int64_t *found, void *values)
{
    const attribute_t *attribute = find(descriptor, name);
    int64_t count = attribute ? attribute->count : 0;
    if (!attribute && name == ATTRIBUTE_HEURISTIC_RESULTS) {
        count = count_offers(descriptor);
    } else if (!attribute && (name == ATTRIBUTE_CONFIG_ENGINE || answers_zero(name) ||
                              asks_for_workspace(name))) {
        count = 1;
    }
    if (found) {
        *found = count;
    }
    if (!values || wanted < 1 || count < 1) {
        return STATUS_SUCCESS;
    }
    /* Descriptors are returned in objects that the caller has made. */
    if (type == TYPE_BACKEND_DESCRIPTOR) {
        if (name == ATTRIBUTE_HEURISTIC_RESULTS) {
            count = offer(descriptor, values, wanted);
            if (found) {
                *found = count;
            }
        }
        return STATUS_SUCCESS;
    }
    if (asks_for_workspace(name)) {
        memcpy(values, &descriptor->workspace_bytes, sizeof(descriptor->workspace_bytes));
    } else if (attribute) {
        int64_t copied = wanted < count ? wanted : count;
        memcpy(values, attribute->values, (size_t)copied * element_bytes(attribute->type));
    } else {
        memset(values, 0, element_bytes(type));
    }
    return STATUS_SUCCESS;
}

static bool has_workspace(const descriptor_t *pack)
{
    const attribute_t *attribute = find(pack, ATTRIBUTE_PACK_WORKSPACE);
    void *workspace = NULL;
    if (attribute && attribute->type == TYPE_VOID_PTR && attribute->count > 0) {
        memcpy(&workspace, attribute->values, sizeof(void *));
    }
    return workspace != NULL;
}

/* A slower plan is either compared with the fastest, in the work space of that, or is there because
 * that work space could not be had. */
EXPORT status_t cudnnBackendExecute(handle_t *handle, const descriptor_t *plan,
                                    const descriptor_t *pack)
{
    (void)handle;
    simcudnn_spaces_t spaces = {.convolution = plan->workspace_bytes};
    if (plan->workspace_bytes < plan->fastest_bytes) {
        if (simgpu_pass_ns) {
            simgpu_pass_ns(SLOWER_NS);
        }
        spaces.missed = has_workspace(pack) ? 0 : plan->fastest_bytes;
    }
    simcudnn_leave_word(spaces);
    return STATUS_SUCCESS;
}
