/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites over stacks that the test makes up: everything of shim/sites/site.c and below, but
 * what reads the thread's real stacks. What it tells the trace is read back by the reader's own
 * table. */
#include <criterion/criterion.h>

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report/trace/sites.h"
#include "shim/process/log.h"
#include "shim/process/session.h"
#include "shim/sites/index.h"
#include "shim/sites/native/native.h"
#include "shim/sites/python/python.h"
#include "shim/sites/site.h"
#include "shim/sites/tags.h"
#include "shim/tables/options.h"

#define MODULE_BYTES 0x100000u

/* --- The process around it -------------------------------------------------------------------- */

static struct ms_options options;
static ms_definitions_t *told;  /* what the trace has */
static uint32_t refused_kind;   /* the trace has no more room for these */
static bool forgetful;          /* nothing is kept of what it is told */
static uint64_t generation;     /* of modules that are new from here on */
static uint64_t renewed_module; /* the one base to which that applies */
static _Atomic uint64_t logged;

static _Thread_local struct {
    uint64_t addresses[MS_STACK_DEPTH_MAX];
    struct ms_python_frame frames[MS_STACK_DEPTH_MAX];
    struct ms_native_stack native;
    struct ms_python_stack python;
    uint64_t python_hash;
    uint32_t python_node; /* what was remembered of it */
    uint32_t tag;
    struct ms_event event; /* the last one recorded */
} now;

const struct ms_options *ms_options(void)
{
    return &options;
}

ms_trace_t *ms_session_trace(void)
{
    return told != NULL ? (ms_trace_t *)&told : NULL;
}

void ms_session_emit(const struct ms_event *event)
{
    now.event = *event;
}

bool ms_trace_define(ms_trace_t *trace, uint32_t kind, const void *payload, size_t bytes)
{
    (void)trace;
    if (kind == refused_kind) {
        return false;
    }
    if (!forgetful) {
        ms_definitions_add(told, kind, payload, bytes);
    }
    return true;
}

void ms_log(enum ms_log_level level, const char *format, ...)
{
    (void)level;
    (void)format;
    atomic_fetch_add(&logged, 1);
}

uint32_t ms_tag_current(void)
{
    return now.tag;
}

void ms_native_prepare(void)
{
}

void ms_native_capture_from(const struct ms_step_at *from, uint32_t depth,
                            struct ms_native_stack *out)
{
    (void)from;
    *out = now.native;
    out->count = out->count < depth ? out->count : depth;
}

struct ms_native_note *ms_native_recall(const struct ms_step_at *from, uint32_t depth,
                                        uint64_t *of_modules)
{
    (void)from;
    *of_modules = now.native.generation;
    return now.native.count <= depth ? now.native.note : NULL;
}

void ms_native_recalled(struct ms_native_note *note, uint64_t of_modules,
                        struct ms_native_stack *out)
{
    *out = now.native;
    out->note = note;
    out->generation = of_modules;
}

/* Modules lie one after the other; what lies below the first was made at run time. */
bool ms_native_module(uint64_t address, struct ms_native_module *out, char *path,
                      uint32_t path_bytes)
{
    const uint64_t base = address / MODULE_BYTES * MODULE_BYTES;
    *out = (struct ms_native_module){.base = base,
                                     .bytes = MODULE_BYTES,
                                     .generation = base == renewed_module ? generation : 0,
                                     .build_id_bytes = 1,
                                     .build_id = {0xab}};
    (void)snprintf(path, path_bytes, "/module-%llu", (unsigned long long)(base / MODULE_BYTES));
    return base != 0;
}

void ms_python_capture(uint32_t depth, struct ms_python_stack *out)
{
    (void)depth;
    *out = now.python;
}

void ms_python_recall(uint32_t depth, struct ms_python_stack *out)
{
    (void)depth;
    *out = now.python;
}

void ms_python_remember(const struct ms_python_stack *stack, uint32_t node)
{
    cr_assert_not_null(stack->frames);
    now.python_node = node;
}

uint64_t ms_python_hash(const struct ms_python_stack *stack)
{
    (void)stack;
    return now.python_hash;
}

const char *ms_native_refusal(void)
{
    return NULL;
}

const char *ms_python_refusal(void)
{
    return NULL;
}

#define UNREADABLE 666u

/* Code objects that are called so. */
enum {
    FIRST_NAMED = 1000,
    TRAIN = FIRST_NAMED,
    CLOSURE,
    WRAPPER,
    ADAM,
    ADAM_MADE,
    LION,
    LBFGS,
    LOAD_STATE,
    ZERO_GRAD,
    SCHEDULER,
    DEEPCOPY,
    MODEL,
    LOAD_MODEL,
    BACKWARD,
    ENGINE,
    NAMED_END
};

#define TORCH "/usr/lib/python3/dist-packages/torch"

static const struct {
    const char *file, *function;
} named_code[] = {
    [TRAIN - FIRST_NAMED] = {"/home/me/train.py", "train"},
    [CLOSURE - FIRST_NAMED] = {"/home/me/train.py", "train.<locals>.closure"},
    [WRAPPER -
        TRAIN] = {TORCH "/optim/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper"},
    [ADAM - FIRST_NAMED] = {TORCH "/optim/adam.py", "Adam.step"},
    [ADAM_MADE - FIRST_NAMED] = {TORCH "/optim/adam.py", "Adam.__init__"},
    [LION - FIRST_NAMED] = {"/home/me/lion.py", "Lion.step"},
    [LBFGS - FIRST_NAMED] = {TORCH "/optim/lbfgs.py", "LBFGS.step"},
    [LOAD_STATE - FIRST_NAMED] = {TORCH "/optim/optimizer.py", "Optimizer.load_state_dict"},
    [ZERO_GRAD - FIRST_NAMED] = {TORCH "/optim/optimizer.py", "Optimizer.zero_grad"},
    [SCHEDULER - FIRST_NAMED] = {TORCH "/optim/lr_scheduler.py", "LRScheduler.step"},
    [DEEPCOPY - FIRST_NAMED] = {"/usr/lib/python3.11/copy.py", "deepcopy"},
    [MODEL - FIRST_NAMED] = {TORCH "/nn/modules/module.py", "Module._call_impl"},
    [LOAD_MODEL - FIRST_NAMED] = {TORCH "/nn/modules/module.py", "Module.load_state_dict"},
    [BACKWARD - FIRST_NAMED] = {TORCH "/_tensor.py", "Tensor.backward"},
    [ENGINE - FIRST_NAMED] = {TORCH "/autograd/graph.py", "_engine_run_backward"},
};

bool ms_python_code(uint64_t code, struct ms_python_code *out)
{
    const bool named = code >= FIRST_NAMED && code < NAMED_END;
    out->version = 3 << 8 | 11;
    out->first_line = (uint32_t)code;
    out->file_bytes =
        named ? (size_t)snprintf(out->file, sizeof(out->file), "%s",
                                 named_code[code - FIRST_NAMED].file)
              : (size_t)snprintf(out->file, sizeof(out->file), "file-%u", (unsigned)code);
    out->function_bytes = (size_t)snprintf(out->function, sizeof(out->function), "%s",
                                           named ? named_code[code - FIRST_NAMED].function : "f");
    out->table_bytes = 2;
    memcpy(out->table, "\x01\x02", 2);
    return code != UNREADABLE;
}

/* --- Stacks ----------------------------------------------------------------------------------- */

static void open_sites(enum ms_stacks_mode mode)
{
    options = (struct ms_options){.trace = true, .stacks = mode, .stack_depth = 64};
    told = ms_definitions_new();
    ms_sites_prepare();
}

static uint64_t hash_words(const uint64_t *words, size_t count)
{
    uint64_t hash = count;
    for (size_t i = 0; i < count; i++) {
        hash = ms_mix(hash, words[i]);
    }
    return hash;
}

/* Innermost first. */
static void stand_at(const uint64_t *addresses, uint32_t count)
{
    memcpy(now.addresses, addresses, count * sizeof(*addresses));
    now.native = (struct ms_native_stack){.addresses = now.addresses,
                                          .count = count,
                                          .hash = hash_words(addresses, count),
                                          .generation = generation};
}

static void run_python(const struct ms_python_frame *frames, uint32_t count)
{
    memcpy(now.frames, frames, count * sizeof(*frames));
    now.python = (struct ms_python_stack){.frames = now.frames, .count = count};
    now.python_hash = hash_words((const uint64_t *)now.frames, count * sizeof(*frames) / 8);
}

#define STAND_AT(...)                         \
    stand_at((const uint64_t[]){__VA_ARGS__}, \
             sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

static void check_native(uint32_t site, const uint64_t *addresses, uint32_t count)
{
    const struct ms_site_definition *is = ms_definitions_site(told, site);
    cr_assert_not_null(is);
    uint32_t node = is->native;
    for (uint32_t i = 0; i < count; i++) {
        const struct ms_native_definition *frame = ms_definitions_native(told, node);
        cr_assert_not_null(frame);
        const struct ms_module_read *module = ms_definitions_module(told, frame->module);
        const uint64_t base = module != NULL ? module->is.base : 0;
        cr_assert_eq(base, addresses[i] / MODULE_BYTES * MODULE_BYTES);
        cr_assert_eq(base + frame->address, addresses[i]);
        node = frame->caller;
    }
    cr_assert_eq(node, 0);
}

Test(sites, one_stack_is_one_site)
{
    const uint64_t stack[] = {0x100010, 0x200020, 0x300030};
    open_sites(MS_STACKS_FULL);
    stand_at(stack, 3);
    const uint32_t site = ms_site_capture(1);
    cr_assert_eq(site, 1);
    for (int i = 0; i < 10; i++) {
        cr_assert_eq(ms_site_capture(1), site);
    }
    check_native(site, stack, 3);
    cr_assert_eq(ms_definitions_site_count(told), 1);
    cr_assert_eq(ms_definitions_damaged(told), 0);
    const struct ms_module_read *module = ms_definitions_module(told, 1);
    cr_assert_str_eq(module->path, "/module-1");
    cr_assert_eq(module->is.build_id[0], 0xab);
}

Test(sites, stacks_that_differ_anywhere_are_others)
{
    open_sites(MS_STACKS_FULL);
    const uint64_t stacks[][4] = {
        {0x100010, 0x200020, 0x300030, 0},        {0x100011, 0x200020, 0x300030, 0},
        {0x100010, 0x200021, 0x300030, 0},        {0x100010, 0x200020, 0x300031, 0},
        {0x100010, 0x200020, 0x300030, 0x400040}, {0x77, 0x200020, 0x300030, 0}};
    uint32_t sites[6];
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 6; i++) {
            const uint32_t count = i == 4 ? 4 : 3;
            stand_at(stacks[i], count);
            const uint32_t site = ms_site_capture(1);
            cr_assert(round == 0 || site == sites[i]);
            sites[i] = site;
            check_native(site, stacks[i], count);
        }
    }
    STAND_AT(0x200020, 0x300030);
    cr_assert_eq(ms_site_capture(1), 7);
    cr_assert_eq(ms_definitions_site_count(told), 7);
    cr_assert_eq(ms_definitions_damaged(told), 0);
}

/* Equal hashes prove nothing. */
Test(sites, stacks_of_one_hash_are_told_apart)
{
    open_sites(MS_STACKS_FULL);
    uint32_t sites[64];
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < 64; i++) {
            const struct ms_python_frame frame = {.code = 5, .instruction = (uint32_t)(i % 8)};
            STAND_AT(0x100010 + i / 8, 0x200020);
            run_python(&frame, 1);
            now.native.hash = now.python_hash = 42;
            const uint32_t site = ms_site_capture(1);
            cr_assert_neq(site, 0);
            cr_assert(round == 0 || site == sites[i]);
            sites[i] = site;
        }
    }
    cr_assert_eq(ms_definitions_site_count(told), 64);
}

Test(sites, python_frames_and_what_the_thread_is)
{
    open_sites(MS_STACKS_FULL);
    const struct ms_python_frame frames[] = {
        {.code = 7, .identity = 1, .instruction = 10},
        {.code = 8, .identity = 1, .instruction = 20, .flags = MS_PYTHON_ENTRY},
        {.code = UNREADABLE, .identity = 1}};
    STAND_AT(0x100010);
    run_python(frames, 3);
    now.tag = 9;
    now.python.cut = true;
    now.native.lost = true;
    const uint32_t site = ms_site_capture(1);
    const struct ms_site_definition *is = ms_definitions_site(told, site);
    cr_assert_eq(is->tag, 9);
    cr_assert_eq(is->thread, MS_THREAD_PYTHON);
    cr_assert_eq(is->flags, MS_SITE_PYTHON_CUT | MS_SITE_NATIVE_LOST);
    const struct ms_python_definition *frame = ms_definitions_python(told, is->python);
    const struct ms_code_read *code = ms_definitions_code(told, frame->code);
    cr_assert_str_eq(code->file, "file-7");
    cr_assert_str_eq(code->function, "f");
    cr_assert_eq(code->is.first_line, 7);
    cr_assert_eq(code->is.table_bytes, 2);
    cr_assert_eq(code->table[1], 2);
    cr_assert_eq(frame->instruction, 10);
    frame = ms_definitions_python(told, frame->caller);
    cr_assert_eq(frame->flags, MS_PYTHON_ENTRY);
    frame = ms_definitions_python(told, frame->caller);
    cr_assert_eq(frame->code, 0, "a code object that cannot be read has none");
    cr_assert_eq(frame->caller, 0);

    now.tag = 10;
    cr_assert_eq(ms_site_capture(1), site + 1);
    now.tag = 9;
    now.frames[0].instruction = 12;
    cr_assert_eq(ms_site_capture(1), site + 2, "another line of the same function");
    now.frames[0].instruction = 10;
    now.frames[0].identity = 2;
    cr_assert_eq(ms_site_capture(1), site + 3, "another function at the same address");
    is = ms_definitions_site(told, site + 3);
    cr_assert_neq(ms_definitions_python(told, is->python)->code, code->is.id);
    now.frames[0].identity = 1;
    cr_assert_eq(ms_site_capture(1), site);
}

/* Innermost first. */
static bool is_optimizers(const uint64_t *codes, uint32_t count)
{
    struct ms_python_frame frames[MS_STACK_DEPTH_MAX] = {0};
    for (uint32_t i = 0; i < count; i++) {
        frames[i] = (struct ms_python_frame){.code = codes[i], .identity = 1};
    }
    run_python(frames, count);
    const uint32_t site = ms_site_capture(1);
    cr_assert_neq(site, 0);
    return ms_site_is_optimizers(site);
}

#define IS_OPTIMIZERS(...)                         \
    is_optimizers((const uint64_t[]){__VA_ARGS__}, \
                  sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

Test(sites, what_an_optimizer_asks_for_is_its_own)
{
    open_sites(MS_STACKS_PYTHON);
    cr_assert_not(IS_OPTIMIZERS(UNREADABLE), "no code object is known yet");
    cr_assert(IS_OPTIMIZERS(ADAM, WRAPPER, TRAIN));
    cr_assert(IS_OPTIMIZERS(LION, WRAPPER, TRAIN), "any subclass: its step is wrapped");
    cr_assert(IS_OPTIMIZERS(1, UNREADABLE, ADAM, WRAPPER, TRAIN), "what it calls");
    cr_assert(IS_OPTIMIZERS(ADAM, WRAPPER, 2, BACKWARD, TRAIN), "in a hook of backward");
    cr_assert(IS_OPTIMIZERS(LOAD_STATE, TRAIN));
    cr_assert(IS_OPTIMIZERS(DEEPCOPY, LOAD_STATE, TRAIN));
}

Test(sites, what_others_ask_for_is_no_optimizers)
{
    open_sites(MS_STACKS_PYTHON);
    cr_assert_not(IS_OPTIMIZERS(TRAIN));
    cr_assert_not(IS_OPTIMIZERS(LION, TRAIN), "a function that is merely named step");
    cr_assert_not(IS_OPTIMIZERS(MODEL, TRAIN));
    cr_assert_not(IS_OPTIMIZERS(LOAD_MODEL, TRAIN));
    cr_assert_not(IS_OPTIMIZERS(ADAM_MADE, TRAIN));
    cr_assert_not(IS_OPTIMIZERS(ZERO_GRAD, TRAIN));
    cr_assert_not(IS_OPTIMIZERS(SCHEDULER, TRAIN));
    now.python = (struct ms_python_stack){0};
    now.python_hash = 0;
    options.stacks = MS_STACKS_NATIVE;
    STAND_AT(0x100010);
    cr_assert_not(ms_site_is_optimizers(ms_site_capture(1)));
}

/* Told by its node alone, also beside another native stack. */
Test(sites, a_remembered_python_stack_is_the_same_site)
{
    const struct ms_python_frame frames[] = {{.code = 1}, {.code = 2}};
    uint32_t sites[2], others[2];
    open_sites(MS_STACKS_FULL);
    STAND_AT(0x100010);
    run_python(frames, 2);
    sites[0] = ms_site_capture(1);
    now.python =
        (struct ms_python_stack){.count = 2, .node = now.python_node, .hash = now.python_hash};
    sites[1] = ms_site_capture(1);
    STAND_AT(0x100020);
    others[0] = ms_site_capture(1);
    run_python(frames, 2);
    others[1] = ms_site_capture(1);
    cr_assert_neq(sites[0], 0);
    cr_assert_neq(others[0], sites[0]);
    cr_assert_eq(sites[0], sites[1]);
    cr_assert_eq(others[0], others[1]);
}

Test(sites, a_lent_stack_counts_for_those_without_one)
{
    const struct ms_python_frame caller = {.code = 5, .instruction = 1};
    open_sites(MS_STACKS_FULL);
    STAND_AT(0x100010, 0x200020);
    run_python(&caller, 1);
    cr_assert(ms_site_lend());
    cr_assert_eq(now.event.kind, MS_EVENT_CALL);
    now.python = (struct ms_python_stack){0};
    const uint32_t lent = ms_site_capture(1);
    const struct ms_site_definition *site = ms_definitions_site(told, lent);
    cr_assert_eq(site->python, now.event.id);
    ms_site_lend_end();
    cr_assert_neq(ms_site_capture(1), lent);
}

Test(sites, a_call_without_a_stack_lends_none)
{
    open_sites(MS_STACKS_FULL);
    now.python = (struct ms_python_stack){0};
    cr_assert_not(ms_site_lend());
    cr_assert_eq(now.event.kind, 0);
}

Test(sites, what_an_optimizers_closure_runs_is_the_models)
{
    open_sites(MS_STACKS_PYTHON);
    cr_assert_not(IS_OPTIMIZERS(MODEL, CLOSURE, LBFGS, WRAPPER, TRAIN));
    cr_assert_not(IS_OPTIMIZERS(ENGINE, BACKWARD, CLOSURE, LBFGS, WRAPPER, TRAIN));
    cr_assert(IS_OPTIMIZERS(LBFGS, WRAPPER, TRAIN));
}

Test(sites, a_number_that_is_no_sites_is_no_optimizers)
{
    cr_assert_not(ms_site_is_optimizers(1), "before there are any");
    open_sites(MS_STACKS_PYTHON);
    cr_assert(IS_OPTIMIZERS(ADAM));
    cr_assert(ms_site_is_optimizers(1));
    cr_assert_not(ms_site_is_optimizers(0));
    cr_assert_not(ms_site_is_optimizers(2));
    cr_assert_not(ms_site_is_optimizers(UINT32_MAX));
}

static void *named(void *name)
{
    (void)pthread_setname_np(pthread_self(), name);
    STAND_AT(0x100010);
    return (void *)(uintptr_t)ms_site_capture(1);
}

static uint32_t site_of_thread(const char *name)
{
    pthread_t thread;
    void *site;
    cr_assert_eq(pthread_create(&thread, NULL, named, (void *)(uintptr_t)name), 0);
    cr_assert_eq(pthread_join(thread, &site), 0);
    return (uint32_t)(uintptr_t)site;
}

Test(sites, backward_threads_are_known_by_their_name)
{
    open_sites(MS_STACKS_FULL);
    const uint32_t other = site_of_thread("worker"), backward = site_of_thread("pt_autograd_0");
    cr_assert_eq(ms_definitions_site(told, other)->thread, MS_THREAD_OTHER);
    cr_assert_eq(ms_definitions_site(told, backward)->thread, MS_THREAD_BACKWARD);
    cr_assert_eq(site_of_thread("pt_autograd_13"), backward);
}

Test(sites, code_loaded_anew_at_the_same_place_is_another)
{
    open_sites(MS_STACKS_FULL);
    STAND_AT(0x100010, 0x200020);
    const uint32_t first = ms_site_capture(1);
    STAND_AT(0x300010, 0x400020);
    const uint32_t apart = ms_site_capture(1);
    generation = 1; /* something was unloaded, and module 2 lies anew where it was */
    renewed_module = UINT64_C(2) * MODULE_BYTES;
    STAND_AT(0x100010, 0x200020);
    const uint32_t second = ms_site_capture(1);
    cr_assert_neq(second, first);
    cr_assert_eq(ms_site_capture(1), second);
    STAND_AT(0x300010, 0x400020);
    cr_assert_eq(ms_site_capture(1), apart, "what stayed is what it was");
    const uint32_t caller =
        ms_definitions_native(told, ms_definitions_site(told, second)->native)->caller;
    const uint32_t before =
        ms_definitions_native(told, ms_definitions_site(told, first)->native)->caller;
    cr_assert_neq(ms_definitions_native(told, caller)->module,
                  ms_definitions_native(told, before)->module);
}

Test(sites, what_is_not_recorded_is_site_0)
{
    open_sites(MS_STACKS_OFF);
    STAND_AT(0x100010);
    cr_assert_eq(ms_site_capture(1), 0);
    now.tag = 3;
    const uint32_t tagged = ms_site_capture(1);
    cr_assert_neq(tagged, 0);
    cr_assert_eq(ms_definitions_site(told, tagged)->native, 0);
    options.stacks = MS_STACKS_PYTHON;
    now.tag = 0;
    cr_assert_eq(ms_site_capture(1), 0, "a thread without Python");
    options.stacks = MS_STACKS_FULL;
    ms_definitions_t *trace = told;
    told = NULL; /* MEMSHIM_TRACE=off, a fork child */
    cr_assert_eq(ms_site_capture(1), 0);
    told = trace;
}

/* Nothing is named that is not there, and what was there stays. */
Test(sites, a_full_trace_ends_new_sites_only)
{
    for (uint32_t kind = MS_DEFINE_MODULE; kind <= MS_DEFINE_SITE; kind++) {
        if (kind == MS_DEFINE_TAG) {
            continue;
        }
        const pid_t child = fork();
        if (child == 0) {
            const struct ms_python_frame old = {.code = 1}, new = {.code = 2};
            open_sites(MS_STACKS_FULL);
            STAND_AT(0x100010);
            run_python(&old, 1);
            const uint32_t kept = ms_site_capture(1);
            refused_kind = kind;
            STAND_AT(0x100010, 0x200020);
            run_python(&new, 1);
            const bool refused = ms_site_capture(1) == 0 || kind == MS_DEFINE_MODULE;
            (void)ms_site_capture(1);
            STAND_AT(0x100010);
            run_python(&old, 1);
            const bool stays = kept != 0 && ms_site_capture(1) == kept;
            _exit(refused && stays && logged <= 1 && ms_definitions_damaged(told) == 0 ? 0 : 1);
        }
        int status;
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_assert_eq(status, 0, "kind %u", kind);
    }
}

/* --- Many threads ----------------------------------------------------------------------------- */

#define THREADS 4
#define STACKS  4000

static _Atomic uint32_t seen[STACKS];
static _Atomic uint32_t disagreements;

static void *capture_all(void *seed)
{
    uint64_t at = (uintptr_t)seed;
    for (int i = 0; i < 3 * STACKS; i++) {
        at = (at * 1103515245 + 12345) % STACKS;
        STAND_AT(0x100000 + at, 0x200000 + at / 10, 0x300000);
        const uint32_t site = ms_site_capture(1);
        uint32_t before = 0;
        if (!atomic_compare_exchange_strong(&seen[at], &before, site) && before != site) {
            atomic_fetch_add(&disagreements, 1);
        }
    }
    return NULL;
}

Test(sites, threads_agree)
{
    pthread_t threads[THREADS];
    open_sites(MS_STACKS_FULL);
    for (uintptr_t i = 0; i < THREADS; i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, capture_all, (void *)(i + 1)), 0);
    }
    for (uintptr_t i = 0; i < THREADS; i++) {
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
    }
    cr_assert_eq(disagreements, 0);
    uint32_t count = 0;
    for (uint64_t at = 0; at < STACKS; at++) {
        if (seen[at] != 0) {
            const uint64_t stack[] = {0x100000 + at, 0x200000 + at / 10, 0x300000};
            check_native(seen[at], stack, 3);
            count++;
        }
    }
    cr_assert_eq(ms_definitions_site_count(told), count);
    cr_assert_eq(ms_definitions_damaged(told), 0);
}

/* --- Memory ----------------------------------------------------------------------------------- */

static uint64_t resident_bytes(void)
{
    unsigned long all, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    cr_assert_eq(fscanf(file, "%lu %lu", &all, &resident), 2);
    (void)fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* 40 native and 12 Python frames: `alone` and 2 of its own, up to the 24th and the 6th shared with
 * some 60, the others with all. */
static void stand_deep(uint64_t i, uint64_t alone)
{
    uint64_t addresses[40];
    struct ms_python_frame frames[12];
    for (uint64_t f = 0; f < 40; f++) {
        const uint64_t own = f < alone ? i : f < 24 ? i / 60 : 0;
        addresses[f] = 0x100000 + f * MODULE_BYTES / 8 + own % 0x10000 * 16 + own / 0x10000;
    }
    for (uint64_t f = 0; f < 12; f++) {
        const uint64_t own = f < 2 ? i : f < 6 ? i / 60 : 0;
        frames[f] = (struct ms_python_frame){
            .code = 1000 + f + own % 50 * 12, .identity = 1, .instruction = (uint32_t)(own / 50)};
    }
    stand_at(addresses, 40);
    run_python(frames, 12);
}

static void check_memory(uint64_t alone)
{
    open_sites(MS_STACKS_FULL);
    forgetful = true;
    const uint64_t before = resident_bytes();
    for (uint64_t i = 0; i < 100000; i++) {
        stand_deep(i, alone);
        cr_assert_eq(ms_site_capture(1), i + 1);
    }
    const uint64_t taken = resident_bytes() - before;
    cr_log_info("%.1f bytes a stack", (double)taken / 100000);
    cr_assert_lt(taken, UINT64_C(64) << 20, "%llu", (unsigned long long)taken);
    cr_assert_leq(taken, ms_pages_taken_bytes() + (UINT64_C(4) << 20), "more than is counted");
    for (uint64_t i = 0; i < 100000; i += 997) {
        stand_deep(i, alone);
        cr_assert_eq(ms_site_capture(1), i + 1);
    }
}

Test(sites, a_hundred_thousand_stacks_fit_into_64_mib)
{
    check_memory(8);
}

Test(sites, they_fit_also_where_they_share_little)
{
    check_memory(30);
}

/* --- Sampling --------------------------------------------------------------------------------- */

/* The estimate is the sum of bytes / chance over what was sampled, its variance that of
 * independent draws: the sum of bytes^2 (1 - chance) / chance. */
Test(sites, sampling_is_unbiased)
{
    const uint64_t sizes[] = {512, 4096, 100000, 1 << 20, 3 << 20, 50 << 20};
    enum { ROUNDS = 30000, SIZES = 6 };
    uint64_t sampled[SIZES] = {0};
    open_sites(MS_STACKS_FULL);
    options.sample_bytes = 1 << 20;
    STAND_AT(0x100010);
    uint32_t out = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int s = 0; s < SIZES; s++) {
            const uint32_t site = ms_site_capture(sizes[s]);
            const bool passed_over =
                (ms_definitions_site(told, site)->flags & MS_SITE_SAMPLED_OUT) != 0;
            cr_assert(!passed_over || out == 0 || out == site);
            out = passed_over ? site : out;
            sampled[s] += !passed_over;
        }
    }
    cr_assert_eq(ms_definitions_sampling_bytes(told), 1 << 20);
    cr_assert_eq(ms_definitions_site_count(told), 2);
    cr_assert_eq(out, 1);
    for (int s = 0; s < SIZES; s++) {
        const double chance = 1 - exp(-(double)sizes[s] / (1 << 20));
        const double expected = ROUNDS * chance;
        const double sigma = sqrt(ROUNDS * chance * (1 - chance));
        cr_assert_leq(fabs((double)sampled[s] - expected), 5 * sigma + 1e-9,
                      "%llu bytes: %llu sampled, %.1f expected, sigma %.1f",
                      (unsigned long long)sizes[s], (unsigned long long)sampled[s], expected,
                      sigma);
    }
}
