/* SPDX-License-Identifier: Apache-2.0 */
/* The table of functions whose frames hint at the purpose of a call site's memory. */
#include "report/fold/frame_hints.h"

#include <stdbool.h>
#include <string.h>

static bool ends(const char *text, const char *with)
{
    const size_t bytes = strlen(text), tail = strlen(with);

    return bytes >= tail && strcmp(text + bytes - tail, with) == 0;
}

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

/* The name after the class: "step" of "Adam.step". */
static const char *last_name(const char *function)
{
    const char *dot = strrchr(function, '.');

    return dot ? dot + 1 : function;
}

static bool is_one_of(const char *name, const char *const *list)
{
    for (; *list; list++) {
        if (strcmp(name, *list) == 0) {
            return true;
        }
    }
    return false;
}

static uint8_t hint_of(const char *file, const char *name)
{
    static const char *const calls[] = {"_call_impl", "_wrapped_call_impl", "__call__", NULL};
    static const char *const backward[] = {"backward", "grad", "_engine_run_backward",
                                           "_make_grads", NULL};
    static const char *const no_update[] = {"__init__",   "zero_grad",       "load_state_dict",
                                            "state_dict", "add_param_group", NULL};
    static const char *const engine[] = {"/torch/autograd/__init__.py", "/torch/autograd/graph.py",
                                         "/torch/_tensor.py", NULL};

    if (ends(file, "/torch/nn/modules/module.py") && is_one_of(name, calls)) {
        return MS_HINT_MODULE;
    }
    /* A compiled model: it passes the call on to a module's, inside. */
    if (ends(file, "/torch/_dynamo/eval_frame.py") && strcmp(name, "__call__") == 0) {
        return MS_HINT_MODULE;
    }
    for (const char *const *part = engine; *part; part++) {
        if (ends(file, *part) && is_one_of(name, backward)) {
            return MS_HINT_BACKWARD;
        }
    }
    if (has(file, "/torch/optim/")) {
        return ends(file, "/lr_scheduler.py") || ends(file, "/swa_utils.py") ||
                       is_one_of(name, no_update)
                   ? MS_HINT_NONE
                   : MS_HINT_OPTIMIZER;
    }
    return strcmp(name, "step") == 0 ? MS_HINT_STEP : MS_HINT_NONE;
}

/* DeepSpeed's ZeRO. It makes flat tensors whose parts are the parameters, and others whose parts
 * are the copies that its optimizer updates; the copies count as optimizer state (arXiv
 * 1910.02054). */
static uint32_t zero_of(const char *file, const char *name)
{
    static const char *const parameters[] = {"_create_fp16_partitions_with_defragmentation",
                                             "flatten_dense_tensors_aligned", "_partition_param",
                                             NULL};
    static const char *const state[] = {"_create_fp32_partitions", "initialize_optimizer_states",
                                        NULL};

    if (!has(file, "/deepspeed/runtime/")) {
        return 0;
    }
    if (has(name, "all_gather") || has(name, "allgather")) {
        return MS_PASSED_GATHER;
    }
    if (has(name, "reduce") || has(name, "scatter")) {
        return MS_PASSED_REDUCE;
    }
    if (is_one_of(name, parameters)) {
        return MS_PASSED_CONSTRUCTION;
    }
    if (strcmp(name, "_setup_for_real_optimizer") == 0) {
        return MS_PASSED_GRADIENT_MADE;
    }
    return is_one_of(name, state) ||
                   (ends(file, "/stage_1_and_2.py") && strcmp(name, "__init__") == 0)
               ? MS_PASSED_STATE_MADE
               : 0;
}

static uint32_t distribution_of(const char *file, const char *name)
{
    uint32_t passed = 0;

    if (has(file, "/torch/distributed/fsdp/") || has(file, "/torch/distributed/_composable/")) {
        passed |= MS_PASSED_SHARDING;
        if (has(name, "all_gather") || has(name, "unshard")) {
            passed |= MS_PASSED_GATHER;
        }
        if (has(name, "reduce")) {
            passed |= MS_PASSED_REDUCE;
        }
    }
    return passed;
}

static uint32_t landmarks_of(const char *file, const char *function, const char *name)
{
    static const char *const builds[] = {"_apply",           "convert",  "to_empty",
                                         "reset_parameters", "__init__", NULL};
    uint32_t passed = distribution_of(file, name) | zero_of(file, name);

    if (has(file, "/torch/nn/modules/") && is_one_of(name, builds)) {
        passed |= MS_PASSED_CONSTRUCTION;
    }
    if ((ends(file, "/copy.py") && strcmp(name, "deepcopy") == 0) ||
        strcmp(name, "__deepcopy__") == 0 || ends(file, "/torch/optim/swa_utils.py")) {
        passed |= MS_PASSED_COPY;
    }
    if (ends(file, "/torch/serialization.py") || has(name, "load_state_dict")) {
        passed |= MS_PASSED_LOAD;
    }
    if (ends(file, "/torch/serialization.py")) {
        passed |= MS_PASSED_DESERIALIZED;
    }
    if (has(file, "/torch/optim/") && strcmp(name, "load_state_dict") == 0) {
        passed |= MS_PASSED_STATE;
    }
    if (has(file, "/torch/optim/") && strcmp(name, "__init__") == 0) {
        passed |= MS_PASSED_STATE_MADE;
    }
    if (ends(file, "/threading.py") && has(function, "_bootstrap")) {
        passed |= MS_PASSED_THREAD;
    }
    if (ends(file, "/memshim/onnxruntime.py")) {
        passed |= MS_PASSED_PROVIDER;
    }
    if (ends(file, "/torch/cuda/graphs.py")) {
        passed |= MS_PASSED_GRAPH;
    }
    return passed | (strcmp(name, "__init__") == 0 ? MS_PASSED_INIT : 0);
}

struct ms_frame_hints ms_frame_hints_of(const char *file, const char *function)
{
    const char *name = last_name(function);

    return (struct ms_frame_hints){hint_of(file, name), landmarks_of(file, function, name)};
}
