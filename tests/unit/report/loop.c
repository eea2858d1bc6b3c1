/* SPDX-License-Identifier: Apache-2.0 */
/* A training loop, made up event by event. See loop.h. */
#include "loop.h"

#include <criterion/criterion.h>
#include <string.h>

#define PACKAGES "/venv/lib/python3.11/site-packages"

enum { MOST_DEPTH = 6, LINES = 4, INSTRUCTION_BYTES = 2 };

/* Python 3.11's line table of a function that has an instruction on each of its lines: an entry of
 * one instruction without columns, and by how much the line rises. */
static const char line_table[] = {'\xe8', 0, '\xe8', 2, '\xe8', 2, '\xe8', 2};

static const struct {
    enum loop_site site;
    uint32_t thread;
    struct {
        const char *file, *function;
        uint32_t line;    /* up to LINES; 0: the function has no lines */
    } frames[MOST_DEPTH]; /* outermost first */
} stacks[] = {
    {LOOP_PARAMETER,
     MS_THREAD_PYTHON,
     {{"train.py", "<module>"},
      {PACKAGES "/torch/nn/modules/module.py", "Module.to"},
      {PACKAGES "/torch/nn/modules/module.py", "Module._apply"}}},
    {LOOP_INPUT, MS_THREAD_PYTHON, {{"train.py", "train"}}},
    {LOOP_FORWARD,
     MS_THREAD_PYTHON,
     {{"train.py", "train"},
      {PACKAGES "/torch/nn/modules/module.py", "Module._call_impl"},
      {"net.py", "Net.forward"}}},
    {LOOP_GRADIENT, MS_THREAD_BACKWARD, {{NULL, NULL}}},
    {LOOP_BACKWARD, MS_THREAD_BACKWARD, {{NULL, NULL}}},
    {LOOP_STATE,
     MS_THREAD_PYTHON,
     {{"train.py", "train"},
      {PACKAGES "/torch/optim/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper"},
      {PACKAGES "/torch/optim/adam.py", "Adam._init_group"}}},
    {LOOP_STATE_TOO,
     MS_THREAD_PYTHON,
     {{"train.py", "train"},
      {PACKAGES "/torch/optim/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper"},
      {PACKAGES "/torch/optim/adam.py", "Adam._init_group", 2}}},
    {LOOP_UPDATE,
     MS_THREAD_PYTHON,
     {{"train.py", "train"},
      {PACKAGES "/torch/optim/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper"},
      {PACKAGES "/torch/optim/adam.py", "Adam.step"}}},
    {LOOP_OTHER_UPDATE,
     MS_THREAD_PYTHON,
     {{"train.py", "train_other"}, {PACKAGES "/torch/optim/adam.py", "Adam.step"}}},
    {LOOP_OWN_UPDATE, MS_THREAD_PYTHON, {{"train.py", "train"}, {"mine.py", "Mine.step"}}},
    {LOOP_EVALUATION,
     MS_THREAD_PYTHON,
     {{"train.py", "train"},
      {"train.py", "evaluate"},
      {PACKAGES "/torch/nn/modules/module.py", "Module._call_impl"},
      {"net.py", "Net.forward"}}},
    {LOOP_TEACHER,
     MS_THREAD_PYTHON,
     {{"train.py", "teach"},
      {PACKAGES "/torch/nn/modules/module.py", "Module._call_impl"},
      {"net.py", "Net.forward"}}},
    {LOOP_IN_STEP,
     MS_THREAD_PYTHON,
     {{"train.py", "<module>"},
      {"trainer.py", "Trainer.step"},
      {PACKAGES "/torch/nn/modules/module.py", "Module._call_impl"},
      {"net.py", "Net.forward"}}},
    {LOOP_STEP_ITSELF,
     MS_THREAD_PYTHON,
     {{"train.py", "<module>"}, {"trainer.py", "Trainer.step"}}},
    {LOOP_COPY,
     MS_THREAD_PYTHON,
     {{"train.py", "<module>"}, {"/usr/lib/python3.11/copy.py", "deepcopy"}}},
    {LOOP_RECOMPUTED,
     MS_THREAD_BACKWARD,
     {{PACKAGES "/torch/nn/modules/module.py", "Module._call_impl"}, {"net.py", "Net.forward"}}},
    {LOOP_PREFETCH,
     MS_THREAD_PYTHON,
     {{"/usr/lib/python3.11/threading.py", "Thread._bootstrap"}, {"loader.py", "Loader.run"}}},
    {LOOP_KEPT, MS_THREAD_PYTHON, {{"train.py", "note_metrics"}}},
    {LOOP_GATHERED,
     MS_THREAD_PYTHON,
     {{"train.py", "train"},
      {PACKAGES "/torch/nn/modules/module.py", "Module._call_impl"},
      {PACKAGES "/torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py",
       "FSDPParamGroup.unshard"}}},
    {LOOP_LOADED,
     MS_THREAD_PYTHON,
     {{"train.py", "<module>"},
      {PACKAGES "/torch/serialization.py", "load"},
      {PACKAGES "/torch/serialization.py", "_legacy_load"}}},
    {LOOP_AVERAGE, MS_THREAD_PYTHON, {{"train.py", "<module>"}, {"train.py", "Average.__init__"}}},
    {LOOP_UNKNOWN, MS_THREAD_OTHER, {{NULL, NULL}}},
    {LOOP_CALL_GRADIENT,
     MS_THREAD_PYTHON,
     {{"train.py", "<module>"},
      {"train.py", "accumulate"},
      {PACKAGES "/torch/autograd/__init__.py", "grad"}}},
    {LOOP_REMEMBERED,
     MS_THREAD_PYTHON,
     {{"train.py", "train"},
      {PACKAGES "/torch/nn/modules/module.py", "Module._call_impl"},
      {"net.py", "Net.forward"},
      {"net.py", "Bank.add"}}},
    {LOOP_REMEMBERED_TOO,
     MS_THREAD_PYTHON,
     {{"train.py", "train"},
      {PACKAGES "/torch/nn/modules/module.py", "Module._call_impl"},
      {"net.py", "Net.forward"},
      {"net.py", "Bank.add_values"}}},
    {LOOP_CALL_BACKWARD,
     MS_THREAD_PYTHON,
     {{"train.py", "train"}, {PACKAGES "/torch/_tensor.py", "Tensor.backward"}}},
    {LOOP_APPENDED,
     MS_THREAD_PYTHON,
     {{"train.py", "train"}, {"train.py", "evaluate"}, {"train.py", "keep"}}},
    {LOOP_PACKAGE,
     MS_THREAD_PYTHON,
     {{"train.py", "main"},
      {PACKAGES "/kit/trainer.py", "Trainer.fit"},
      {PACKAGES "/torch/nn/modules/module.py", "Module._call_impl"},
      {PACKAGES "/kit/models.py", "Attention.forward"},
      {PACKAGES "/torch/nn/modules/module.py", "Module._call_impl"},
      {PACKAGES "/torch/nn/modules/linear.py", "Linear.forward"}}},
    {LOOP_PACKAGE_UPDATE,
     MS_THREAD_PYTHON,
     {{"train.py", "main"},
      {PACKAGES "/kit/trainer.py", "Trainer.fit"},
      {PACKAGES "/torch/optim/adam.py", "Adam.step"}}},
    {LOOP_IN_MAIN, MS_THREAD_PYTHON, {{"script.py", "<module>", 1}, {"script.py", "main", 1}}},
    {LOOP_IN_MAIN_INPUT,
     MS_THREAD_PYTHON,
     {{"script.py", "<module>", 1}, {"script.py", "main", 2}}},
    {LOOP_COMPILED,
     MS_THREAD_PYTHON,
     {{"train.py", "train"},
      {PACKAGES "/torch/_dynamo/eval_frame.py", "OptimizedModule.__call__"},
      {PACKAGES "/torch/nn/modules/module.py", "Module._call_impl"},
      {"net.py", "Net.forward"}}},
    {LOOP_COMPILED_BACKWARD,
     MS_THREAD_BACKWARD,
     {{PACKAGES "/torch/_functorch/_aot_autograd/runtime_wrappers.py", "CompiledFunction.backward"},
      {"<eval_with_key>.5", "forward"},
      {PACKAGES "/torch/_ops.py", "OpOverload.__call__"}}},
    {LOOP_IN_MAIN_MODEL,
     MS_THREAD_PYTHON,
     {{"script.py", "<module>", 1},
      {"script.py", "main", 3},
      {"script.py", "add", 1},
      {PACKAGES "/torch/nn/modules/module.py", "Module._call_impl"},
      {"net.py", "Net.forward"}}},
};

/* Where definitions go: into a table, which finds those that are there already, and further. */
struct target {
    ms_definitions_t *to;
    void (*define)(void *ctx, uint32_t kind, const void *payload, size_t bytes); /* may be null */
    void *ctx;
    bool without_training;
};

static void add(const struct target *target, uint32_t kind, const void *payload, size_t bytes)
{
    ms_definitions_add(target->to, kind, payload, bytes);
    if (target->define) {
        target->define(target->ctx, kind, payload, bytes);
    }
}

/* A node for each frame of each stack, but the same one for the same beginning of two stacks. */
static uint32_t define_frame(const struct target *target, uint32_t caller, const char *file,
                             const char *function, uint32_t line)
{
    const uint32_t instruction = line > 0 ? (line - 1) * INSTRUCTION_BYTES : 0;
    struct {
        struct ms_code_definition is;
        char text[256];
    } code = {.is = {.version = 0x30b,
                     .first_line = 1,
                     .file_bytes = (uint32_t)strlen(file),
                     .function_bytes = (uint32_t)strlen(function),
                     .table_bytes = line > 0 ? sizeof(line_table) : 0}};
    uint32_t id = 1;

    for (const struct ms_python_definition *is; (is = ms_definitions_python(target->to, id));
         id++) {
        const struct ms_code_read *read = ms_definitions_code(target->to, is->code);

        if (is->caller == caller && is->instruction == instruction &&
            strcmp(read->file, file) == 0 && strcmp(read->function, function) == 0) {
            return id;
        }
    }
    code.is.id = id;
    /* One code object for each function: a sign of one belongs to all of its frames. */
    for (uint32_t each = 1; each < id; each++) {
        const struct ms_code_read *read = ms_definitions_code(target->to, each);

        if (read && strcmp(read->file, file) == 0 && strcmp(read->function, function) == 0) {
            code.is.id = each;
        }
    }
    if (code.is.id == id) {
        memcpy(code.text, file, code.is.file_bytes);
        memcpy(code.text + code.is.file_bytes, function, code.is.function_bytes);
        memcpy(code.text + code.is.file_bytes + code.is.function_bytes, line_table,
               code.is.table_bytes);
        add(target, MS_DEFINE_CODE, &code,
            sizeof(code.is) + code.is.file_bytes + code.is.function_bytes + code.is.table_bytes);
    }

    const struct ms_python_definition node = {
        .id = id, .caller = caller, .code = code.is.id, .instruction = instruction};

    add(target, MS_DEFINE_PYTHON, &node, sizeof(node));
    return id;
}

/* In a call of a model or a pass back through it. */
static bool is_training(size_t i)
{
    for (size_t k = 0; k < MOST_DEPTH && stacks[i].frames[k].file; k++) {
        if (strcmp(stacks[i].frames[k].function, "Module._call_impl") == 0) {
            return true;
        }
    }
    return stacks[i].thread == MS_THREAD_BACKWARD || stacks[i].site == LOOP_CALL_GRADIENT ||
           stacks[i].site == LOOP_CALL_BACKWARD;
}

static void define_sites(const struct target *target)
{
    for (size_t i = 0; i < sizeof(stacks) / sizeof(stacks[0]); i++) {
        uint32_t node = 0;

        if (target->without_training && is_training(i)) {
            continue;
        }
        for (size_t k = 0; k < MOST_DEPTH && stacks[i].frames[k].file; k++) {
            node = define_frame(target, node, stacks[i].frames[k].file,
                                stacks[i].frames[k].function, stacks[i].frames[k].line);
        }

        const struct ms_site_definition site = {
            .id = stacks[i].site, .python = node, .thread = stacks[i].thread};

        add(target, MS_DEFINE_SITE, &site, sizeof(site));
    }
}

void loop_define(void (*define)(void *ctx, uint32_t kind, const void *payload, size_t bytes),
                 void *ctx)
{
    const struct target target = {.to = ms_definitions_new(), .define = define, .ctx = ctx};

    define_sites(&target);
    ms_definitions_delete(target.to);
}

static void start(struct loop *loop, bool without_training)
{
    *loop = (struct loop){.definitions = ms_definitions_new(),
                          .table = ms_site_table_new(),
                          .end = {.ran_out_ns = UINT64_MAX}};
    define_sites(&(struct target){.to = loop->definitions, .without_training = without_training});
    loop->landmarks = ms_landmarks_new(loop->definitions);
    loop->end.landmarks = loop->landmarks;
    loop->steps = ms_steps_new(loop->landmarks);
}

void loop_start(struct loop *loop)
{
    start(loop, false);
}

void loop_start_without_training(struct loop *loop)
{
    start(loop, true);
}

void loop_stop(struct loop *loop)
{
    ms_steps_delete(loop->steps);
    ms_landmarks_delete(loop->landmarks);
    ms_site_table_delete(loop->table);
    ms_definitions_delete(loop->definitions);
}

/* Each event has a time of its own. */
static uint64_t number_of(uint64_t time_ns)
{
    return time_ns / 1000;
}

uint64_t loop_born(struct loop *loop, enum loop_site site, uint64_t bytes)
{
    const struct ms_event event = {.kind = MS_EVENT_TENSOR_ALLOC,
                                   .site = site,
                                   .id = ++loop->next_id,
                                   .addr = loop->addr,
                                   .bytes = bytes};

    loop->time_ns += 1000;
    ms_site_table_enter(loop->table, ms_steps_allocation(loop->steps, site, loop->time_ns,
                                                         number_of(loop->time_ns)));
    ms_site_table_apply(loop->table, &event, loop->time_ns);
    return event.id;
}

void loop_died(struct loop *loop, uint64_t id, uint64_t bytes)
{
    const struct ms_event event = {.kind = MS_EVENT_TENSOR_FREE, .id = id, .bytes = bytes};

    loop->time_ns += 1000;
    ms_site_table_apply(loop->table, &event, loop->time_ns);
}

void loop_moment(struct loop *loop, enum loop_site site, uint64_t bytes)
{
    loop_died(loop, loop_born(loop, site, bytes), bytes);
}

/* A step has the number of the event at whose time it begins. */
static void check_begins(const struct ms_recurrence *found)
{
    const uint64_t *times = (const uint64_t *)found->begins.at;
    const uint64_t *events = (const uint64_t *)found->begin_events.at;

    cr_assert_eq(found->begins.bytes, found->begin_events.bytes);
    for (size_t i = 0; i < found->begins.bytes / sizeof(*times); i++) {
        cr_assert_eq(events[i], number_of(times[i]));
    }
}

struct ms_recurrence loop_end_after(struct loop *loop, const struct ms_steps_failures *failures)
{
    struct ms_recurrence found;

    ms_site_table_finish(loop->table, &loop->end);
    ms_steps_judge(loop->steps, loop->table, failures, NULL, &found);
    check_begins(&found);
    ms_buffer_free(&found.begins);
    ms_buffer_free(&found.begin_events);
    return found;
}

struct ms_recurrence loop_end(struct loop *loop)
{
    const struct ms_steps_failures none = {0};

    return loop_end_after(loop, &none);
}

struct ms_site_kinds loop_kinds(const struct loop *loop, enum loop_site site)
{
    const uint64_t made_state_bytes = ms_kinds_made_state(loop->landmarks, loop->table, 0);
    const struct ms_kinds_ground ground = {.definitions = loop->definitions,
                                           .landmarks = loop->landmarks,
                                           .table = loop->table,
                                           .made_state_bytes = &made_state_bytes};
    struct ms_site_kinds kinds;

    ms_kinds_judge(&ground, 0, site, &kinds);
    return kinds;
}
