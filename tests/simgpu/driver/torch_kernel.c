/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of PyTorch that compute, for small tensors, the same as on a real device. See
 * torch_kernel.h. */
#include "torch_kernel.h"

#include "../simgpu.h"
#include "context.h"
#include "memory.h"
#include "values.h"

#include <stdio.h>
#include <string.h>

/* Whether [at, at + bytes) was memory of the device at the launch: only then is the work done. */
static bool is_device(const struct sim_launch *launch, const void *at, size_t bytes)
{
    return bytes != 0 && sim_locate((CUdeviceptr)at).place != SIM_PLACE_PAGEABLE &&
           sim_is_usable((CUdeviceptr)at, bytes, launch->function->module->context->device);
}

/* Larger tensors would take too much time and memory of the host. */
static bool is_there(const struct sim_launch *launch, const void *at, size_t bytes)
{
    return bytes <= SIMGPU_SMALL_CONTENTS_BYTES && is_device(launch, at, bytes);
}

static void declare(struct sim_symbol *symbol, const size_t *sizes, unsigned count)
{
    size_t offset = 0;
    for (unsigned i = 0; i < count; i++) {
        offset = (offset + 7) & ~(size_t)7;
        symbol->offsets[i] = offset;
        symbol->sizes[i] = sizes[i];
        offset += sizes[i];
    }
    symbol->parameter_count = count;
    symbol->parameters_untold = true;
}

/* ---- element by element, of int64 */

enum comparison { AT_LEAST, MORE, AT_MOST, LESS }; /* at::native's OpType, in its order */

/* CompareFunctor<long>: used by Python's max() and min() of two tensors. */
static int64_t compared(const void *functor, int64_t a, int64_t b)
{
    switch (*(const int *)functor) {
    case AT_LEAST:
        return a >= b;
    case MORE:
        return a > b;
    case AT_MOST:
        return a <= b;
    default:
        return a < b;
    }
}

/* CUDAFunctor_add<long>: how often b is added. */
static int64_t added(const void *functor, int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b * *(const uint64_t *)functor);
}

/* CUDAFunctorOnSelf_add<long>: what is added, and how often. */
static int64_t added_number(const void *functor, int64_t a, int64_t unused)
{
    const uint64_t *number = functor;
    (void)unused;
    return (int64_t)((uint64_t)a + number[0] * number[1]);
}

static const struct elementwise {
    const char *name;
    unsigned inputs;
    size_t functor_bytes, result_bytes;
    int64_t (*result)(const void *functor, int64_t a, int64_t b);
} elementwise[] = {
    {"14CompareFunctorIlEESt5arrayIPcLm3EE", 2, sizeof(int), sizeof(bool), compared},
    {"15CUDAFunctor_addIlEESt5arrayIPcLm3EE", 2, 8, 8, added},
    {"21CUDAFunctorOnSelf_addIlEESt5arrayIPcLm2EE", 1, 16, 8, added_number},
};

/* The kernel with this name; NULL: not one of them. */
static const struct elementwise *elementwise_of(const char *name)
{
    for (size_t i = 0; i < sizeof elementwise / sizeof elementwise[0]; i++) {
        if (strstr(name, "elementwise_kernelI") && strstr(name, elementwise[i].name)) {
            return &elementwise[i];
        }
    }
    return NULL;
}

/* Its parameters: the number of elements, the functor, and the places of result and inputs. */
static bool elementwise_check(const struct sim_launch *launch)
{
    const struct elementwise *kind = elementwise_of(launch->function->symbol->name);
    const int *count = launch->parameter_pointers[0];
    char *const *at = launch->parameter_pointers[2];
    bool fine = *count > 0 && is_there(launch, at[0], (size_t)*count * kind->result_bytes);
    for (unsigned i = 1; fine && i <= kind->inputs; i++) {
        fine = is_there(launch, at[i], (size_t)*count * sizeof(int64_t));
    }
    return fine;
}

static void elementwise_follow(const struct sim_launch *launch)
{
    const struct elementwise *kind = elementwise_of(launch->function->symbol->name);
    const int *count = launch->parameter_pointers[0];
    char *const *at = launch->parameter_pointers[2];
    bool known = true;
    for (unsigned i = 1; i <= kind->inputs; i++) {
        known = known && sim_values_known((uint64_t)at[i], (size_t)*count * sizeof(int64_t));
    }
    sim_values_stored((uint64_t)at[0], (size_t)*count * kind->result_bytes, known);
}

static void elementwise_run(const struct sim_launch *launch)
{
    const struct elementwise *kind = elementwise_of(launch->function->symbol->name);
    const int *count = launch->parameter_pointers[0];
    char *const *at = launch->parameter_pointers[2];
    const int64_t *a = (const int64_t *)at[1];
    const int64_t *b = kind->inputs == 2 ? (const int64_t *)at[2] : a;
    simgpu_note_write((uint64_t)at[0], (uint64_t)*count * kind->result_bytes);
    for (int i = 0; i < *count; i++) {
        int64_t result = kind->result(launch->parameter_pointers[1], a[i], b[i]);
        memcpy(at[0] + (size_t)i * kind->result_bytes, &result, kind->result_bytes);
    }
}

/* ---- one value for all elements, of a type whose size is in the name: ranks that have no more
 * input than others send torch.ones */

static bool fill_check(const struct sim_launch *launch)
{
    const int *count = launch->parameter_pointers[0];
    char *const *at = launch->parameter_pointers[2];
    return *count > 0 &&
           is_there(launch, at[0], (size_t)*count * launch->function->symbol->element_bytes);
}

static void fill_run(const struct sim_launch *launch)
{
    const int *count = launch->parameter_pointers[0];
    char *const *at = launch->parameter_pointers[2];
    size_t bytes = launch->function->symbol->element_bytes;
    simgpu_note_write((uint64_t)at[0], *count * bytes);
    for (int i = 0; i < *count; i++) {
        memcpy(at[0] + i * bytes, launch->parameter_pointers[1], bytes);
    }
}

/* The element size of a fill kernel; 0: not one, or of another type. */
static size_t filled_bytes(const char *name)
{
    static const struct {
        const char *kind;
        size_t bytes;
    } kinds[] = {{"b", 1}, {"a", 1}, {"h", 1}, {"s", 2}, {"N3c104HalfE", 2}, {"N3c108BFloat16E", 2},
                 {"i", 4}, {"f", 4}, {"l", 8}, {"d", 8}};
    char whole[64];
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        (void)snprintf(whole, sizeof whole, "11FillFunctorI%sEESt5arrayIPcLm1EE", kinds[i].kind);
        if (strstr(name, "elementwise_kernelI") && strstr(name, whole)) {
            return kinds[i].bytes;
        }
    }
    return 0;
}

/* ---- the sum, or the largest, of all elements of a contiguous int64 tensor */

struct divider {
    unsigned divisor, factor, shift;
};

enum { DIMENSIONS = 25 };

/* at::native::ReduceOp<long, ..., unsigned, long, 4, 4>. */
struct reduction {
    int64_t operation, identity;
    int element_bytes, inputs, outputs, rest_of_configuration[13];
    struct {
        int dimensions;
        struct divider sizes[DIMENSIONS];
        unsigned strides[DIMENSIONS][1];
    } input;
    struct {
        int dimensions;
        struct divider sizes[DIMENSIONS];
        unsigned strides[DIMENSIONS][2];
    } output;
    const int64_t *from;
    int64_t *to[2];
    void *buffers[3];
    int64_t first_index;
    bool accumulates, is_last;
    int output_count;
};

static bool reduce_check(const struct sim_launch *launch)
{
    const struct reduction *r = launch->parameter_pointers[0];
    bool in_one_piece = r->input.dimensions == 0 ||
                        (r->input.dimensions == 1 && r->input.strides[0][0] == sizeof *r->from);
    return r->element_bytes == sizeof *r->from && r->inputs > 0 && r->outputs == 1 &&
           in_one_piece && !r->accumulates && r->is_last &&
           is_there(launch, r->from, (size_t)r->inputs * sizeof *r->from) &&
           is_there(launch, r->to[0], sizeof *r->to[0]);
}

static void reduce_follow(const struct sim_launch *launch)
{
    const struct reduction *r = launch->parameter_pointers[0];
    sim_values_stored((uint64_t)r->to[0], sizeof *r->to[0],
                      sim_values_known((uint64_t)r->from, (size_t)r->inputs * sizeof *r->from));
}

static void sum_run(const struct sim_launch *launch)
{
    const struct reduction *r = launch->parameter_pointers[0];
    uint64_t sum = 0;
    for (int i = 0; i < r->inputs; i++) {
        sum += (uint64_t)r->from[i];
    }
    simgpu_note_write((uint64_t)r->to[0], sizeof sum);
    *r->to[0] = (int64_t)sum;
}

static void largest_run(const struct sim_launch *launch)
{
    const struct reduction *r = launch->parameter_pointers[0];
    int64_t largest = r->from[0];
    for (int i = 1; i < r->inputs; i++) {
        largest = r->from[i] > largest ? r->from[i] : largest;
    }
    simgpu_note_write((uint64_t)r->to[0], sizeof largest);
    *r->to[0] = largest;
}

/* ---- concatenation of tensors along their first dimension */

enum { CAT_TENSORS = 128 };

/* at::native::CatArrInputTensorMetadata<T, unsigned, 128, 1>. */
struct cat_inputs {
    const char *from[CAT_TENSORS];
    unsigned offset[CAT_TENSORS], size[CAT_TENSORS], elements[CAT_TENSORS];
    bool in_one_piece[CAT_TENSORS];
    unsigned strides[8];
};

struct cat_part {
    char *to;
    const char *from;
    size_t bytes;
};

/* The i-th tensor; element_bytes is in the kernel's name. The dimension's own stride is 1 or more
 * elements: what one index along it covers. */
static struct cat_part cat_part(const struct sim_launch *launch, unsigned i)
{
    char *const *to = launch->parameter_pointers[0];
    const struct cat_inputs *inputs = launch->parameter_pointers[1];
    const unsigned *stride = launch->parameter_pointers[4];
    size_t element_bytes = launch->function->symbol->element_bytes;
    return (struct cat_part){*to + (size_t)inputs->offset[i] * *stride * element_bytes,
                             inputs->from[i], inputs->elements[i] * element_bytes};
}

/* A large tensor is copied only if its contents are known, such as those of objects. */
static bool can_copy(const struct sim_launch *launch, const struct cat_part *part)
{
    return is_device(launch, part->to, part->bytes) && is_device(launch, part->from, part->bytes) &&
           (part->bytes <= SIMGPU_SMALL_CONTENTS_BYTES ||
            sim_values_known((uint64_t)part->from, part->bytes));
}

static bool cat_check(const struct sim_launch *launch)
{
    const int *dimension = launch->parameter_pointers[3];
    bool fine = *dimension == 0 && launch->grid[1] <= CAT_TENSORS;
    for (unsigned i = 0; fine && i < launch->grid[1]; i++) {
        struct cat_part part = cat_part(launch, i);
        fine = part.bytes == 0 || can_copy(launch, &part);
    }
    return fine;
}

static void cat_follow(const struct sim_launch *launch)
{
    for (unsigned i = 0; i < launch->grid[1]; i++) {
        struct cat_part part = cat_part(launch, i);
        sim_values_stored((uint64_t)part.to, part.bytes,
                          sim_values_known((uint64_t)part.from, part.bytes));
    }
}

static void cat_run(const struct sim_launch *launch)
{
    for (unsigned i = 0; i < launch->grid[1]; i++) {
        struct cat_part part = cat_part(launch, i);
        simgpu_note_write((uint64_t)part.to, part.bytes);
        memcpy(part.to, part.from, part.bytes);
    }
}

/* ---- torch.cuda._sleep: its cycles are nanoseconds here */

static void is_sleep(struct sim_symbol *symbol)
{
    static const size_t size = sizeof(int64_t);
    declare(symbol, &size, 1);
    symbol->run = sim_kernel_spin;
    symbol->lasts = true;
}

/* ---- by name */

static void is_elementwise(struct sim_symbol *symbol, const struct elementwise *kind)
{
    const size_t sizes[] = {sizeof(int), kind->functor_bytes, (kind->inputs + 1) * sizeof(char *)};
    declare(symbol, sizes, 3);
    symbol->check = elementwise_check;
    symbol->run = elementwise_run;
    symbol->follow = elementwise_follow;
}

static void is_fill(struct sim_symbol *symbol, size_t element_bytes)
{
    const size_t sizes[] = {sizeof(int), element_bytes, sizeof(char *)};
    declare(symbol, sizes, 3);
    symbol->element_bytes = element_bytes;
    symbol->check = fill_check;
    symbol->run = fill_run;
}

static void is_reduction(struct sim_symbol *symbol, void (*run)(const struct sim_launch *))
{
    static const size_t size = sizeof(struct reduction);
    declare(symbol, &size, 1);
    symbol->check = reduce_check;
    symbol->run = run;
    symbol->follow = reduce_follow;
}

static void is_cat(struct sim_symbol *symbol, size_t element_bytes)
{
    static const size_t sizes[] = {sizeof(char *), sizeof(struct cat_inputs), 32, sizeof(int),
                                   sizeof(unsigned)};
    declare(symbol, sizes, 5);
    symbol->element_bytes = element_bytes;
    symbol->check = cat_check;
    symbol->run = cat_run;
    symbol->follow = cat_follow;
}

/* The kernels that copy element by element; others get the sizes in another form. */
static bool is_cat_name(const char *name, unsigned *element_bytes)
{
    static const char *const kinds[] = {"26CatArrayBatchedCopy_contigI",
                                        "35CatArrayBatchedCopy_alignedK_contigI",
                                        "30CatArrayBatchedCopy_vectorizedI"};
    unsigned tensors = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const char *at = strstr(name, kinds[i]);
        if (at && sscanf(at + strlen(kinds[i]), "NS1_10OpaqueTypeILj%uEEEjLi%*dELi%uELi1E",
                         element_bytes, &tensors) == 2) {
            return tensors == CAT_TENSORS;
        }
    }
    return false;
}

void sim_torch_kernel(struct sim_symbol *symbol)
{
    const char *name = symbol->name;
    unsigned element_bytes = 0;
    if (strncmp(name, "_ZN2at4cuda", 11) == 0 && strstr(name, "11spin_kernelEl")) {
        is_sleep(symbol);
    }
    if (strncmp(name, "_ZN2at6native", 13) != 0) {
        return;
    }
    const struct elementwise *kind = elementwise_of(name);
    if (kind) {
        is_elementwise(symbol, kind);
    } else if (filled_bytes(name) != 0) {
        is_fill(symbol, filled_bytes(name));
    } else if (strstr(name, "8ReduceOpIlNS0_14func_wrapper_tIlZNS0_11sum_functorIlllEcl") &&
               strstr(name, "jlLi4ELi4EEEEEvT1_")) {
        is_reduction(symbol, sum_run);
    } else if (strstr(name, "8ReduceOpIlNS0_14func_wrapper_tIlNS0_13MaxNanFunctorIlEEEE"
                            "jlLi4ELi4EEEEEvT1_")) {
        is_reduction(symbol, largest_run);
    } else if (is_cat_name(name, &element_bytes)) {
        is_cat(symbol, element_bytes);
    }
}
