/* SPDX-License-Identifier: Apache-2.0 */
/* Hints that one Python function gives about the stacks that it is in, by its file and its name.
 * The same rules hold while the program runs and when its trace is read. */
#ifndef MEMSHIM_REPORT_FOLD_FRAME_HINTS_H
#define MEMSHIM_REPORT_FOLD_FRAME_HINTS_H

#include <stdint.h>

enum ms_frame_hint {
    MS_HINT_NONE,
    MS_HINT_MODULE,    /* calls an nn.Module */
    MS_HINT_BACKWARD,  /* calls autograd's engine */
    MS_HINT_OPTIMIZER, /* of torch.optim, in an update */
    MS_HINT_STEP       /* of another file, named step: an optimizer's or a loop's */
};

enum ms_landmark {
    MS_PASSED_MODULE = 1,           /* a call of an nn.Module */
    MS_PASSED_CONSTRUCTION = 2,     /* a module's parameters are made, moved or converted */
    MS_PASSED_COPY = 4,             /* copy.deepcopy, or PyTorch's averaged models */
    MS_PASSED_LOAD = 8,             /* torch.load, load_state_dict */
    MS_PASSED_STATE = 16,           /* an optimizer's state is loaded */
    MS_PASSED_SHARDING = 32,        /* FSDP */
    MS_PASSED_GATHER = 64,          /* FSDP or ZeRO gathers parameters */
    MS_PASSED_REDUCE = 128,         /* FSDP or ZeRO reduces gradients */
    MS_PASSED_THREAD = 256,         /* the thread was started by Python's threading */
    MS_PASSED_INIT = 512,           /* somebody's __init__ */
    MS_PASSED_GRAPH = 1024,         /* torch.cuda.graphs */
    MS_PASSED_STATE_MADE = 2048,    /* an optimizer is constructed */
    MS_PASSED_GRADIENT_MADE = 4096, /* ZeRO makes the buffers of its gradients */
    MS_PASSED_DESERIALIZED = 8192,  /* torch.load */
    MS_PASSED_PROVIDER = 16384,     /* memshim.onnxruntime, in ONNX Runtime's place */
};

struct ms_frame_hints {
    uint8_t hint;    /* enum ms_frame_hint: the innermost one of a stack counts */
    uint32_t passed; /* enum ms_landmark, or-ed: all of a stack count */
};

/* file: from the code object. function: with its classes ("Adam.step") or without. */
struct ms_frame_hints ms_frame_hints_of(const char *file, const char *function);

#endif
