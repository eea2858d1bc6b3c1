/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers stacks, and defines their new parts in the trace. */
#include "shim/sites/intern.h"

#include <limits.h>
#include <string.h>

#include "allocator/base/containers/pages.h"
#include "allocator/base/locks/lock.h"
#include "report/fold/frame_hints.h"
#include "shim/sites/index.h"

#define NODES_MAX   (1u << 24) /* of a tree; this many addresses are reserved for them */
#define CODES_MAX   (1u << 20)
#define MODULES_MAX 8192u

/* A frame's place in the tree. Nodes lie in runs. In a run the caller of each node is the one
 * before it; the caller of the first node is in another run. So most nodes of a new stack need
 * neither a caller nor an entry in the index. */
struct stack_link {
    uint32_t to;    /* the first node of its run; for that node: its caller, and FIRST */
    uint32_t names; /* its module or its code object */
};
#define FIRST (1u << 31)

struct tree {
    struct ms_pages frames, links; /* indexed by node */
    struct ms_site_index index;    /* the first node of each run */
    uint32_t count;                /* nodes have the numbers 1 to this */
};

struct known_code {
    uint64_t address, identity;
    /* To whom memory belongs that is requested directly below it. */
    enum { NOBODYS, THE_MODELS, THE_OPTIMIZERS } memory;
};

struct module {
    struct ms_native_module is;
    uint64_t seen; /* the latest generation of the process's modules in which it was found there */
};

static struct tree natives, pythons;
static struct ms_pages codes MS_GUARDED_BY(*MS_LOCK(SITES)); /* struct known_code, by id */
static struct ms_site_index code_index MS_GUARDED_BY(*MS_LOCK(SITES));
static uint32_t code_count MS_GUARDED_BY(*MS_LOCK(SITES));
static struct ms_pages modules; /* struct module, by id */
static uint32_t module_count MS_GUARDED_BY(*MS_LOCK(SITES));

void ms_intern_lock(void)
{
    ms_lock_acquire(MS_LOCK(SITES));
}

void ms_intern_unlock(void)
{
    ms_lock_release(MS_LOCK(SITES));
}

bool ms_intern_open(void)
{
    return ms_pages_reserve(&natives.frames, NODES_MAX * sizeof(uint64_t)) &&
           ms_pages_reserve(&natives.links, NODES_MAX * sizeof(struct stack_link)) &&
           ms_pages_reserve(&pythons.frames, NODES_MAX * sizeof(struct ms_python_frame)) &&
           ms_pages_reserve(&pythons.links, NODES_MAX * sizeof(struct stack_link)) &&
           ms_pages_reserve(&codes, CODES_MAX * sizeof(struct known_code)) &&
           ms_pages_reserve(&modules, MODULES_MAX * sizeof(struct module));
}

/* --- Modules ---------------------------------------------------------------------------------- */

/* Too large for a small thread's stack. */
struct recorded_module {
    struct ms_module_definition is;
    char path[PATH_MAX];
};

static bool define_module(ms_trace_t *trace, uint32_t id, const struct ms_native_module *module,
                          struct recorded_module *recorded)
{
    recorded->is = (struct ms_module_definition){.id = id,
                                                 .build_id_bytes = module->build_id_bytes,
                                                 .base = module->base,
                                                 .bytes = module->bytes};
    memcpy(recorded->is.build_id, module->build_id, sizeof(recorded->is.build_id));
    return ms_trace_define(trace, MS_DEFINE_MODULE, recorded,
                           sizeof(recorded->is) + strnlen(recorded->path, sizeof(recorded->path)));
}

static bool holds(const struct ms_native_module *module, uint64_t address)
{
    return address - module->base < module->bytes;
}

/* The last of the modules that are known to lie there now; 0: none. */
static uint32_t module_at(uint64_t address, uint64_t seen) MS_REQUIRES(*MS_LOCK(SITES))
{
    const struct module *known = modules.base;
    uint32_t id = module_count;
    while (id > 0 && !(known[id].seen == seen && holds(&known[id].is, address))) {
        id--;
    }
    return id;
}

/* 0: no room. */
static uint32_t keep_module(const struct ms_native_module *module, struct recorded_module *recorded,
                            uint64_t seen, ms_trace_t *trace) MS_REQUIRES(*MS_LOCK(SITES))
{
    struct module *known = modules.base;
    uint32_t id = module_count;
    while (id > 0 &&
           (known[id].is.base != module->base || known[id].is.generation != module->generation)) {
        id--;
    }
    if (id == 0) {
        id = module_count + 1;
        if (!ms_pages_reach(&modules, (id + 1) * sizeof(*known)) ||
            !define_module(trace, id, module, recorded)) {
            return 0;
        }
        known[id].is = *module;
        module_count = id;
    }
    known[id].seen = seen;
    return id;
}

/* 0: no module, or no room. The loader is asked without our lock, because another thread may hold
 * the loader's while it waits for this one. */
static uint32_t meet_module(uint64_t address, uint64_t seen, ms_trace_t *trace,
                            struct ms_native_module *module)
{
    uint32_t id = 0;
    struct recorded_module *recorded = ms_pages_map(sizeof(*recorded));
    if (recorded != NULL &&
        ms_native_module(address, module, recorded->path, sizeof(recorded->path))) {
        ms_intern_lock();
        id = keep_module(module, recorded, seen, trace);
        ms_intern_unlock();
    }
    if (recorded != NULL) {
        ms_pages_unmap(recorded, sizeof(*recorded));
    }
    return id;
}

void ms_intern_modules(const struct ms_native_stack *stack, ms_trace_t *trace,
                       struct ms_stack_modules *out)
{
    struct ms_native_module last = {0}; /* where nothing was found, it covers no address */
    uint32_t last_id = 0;
    for (uint32_t i = 0; i < stack->count; i++) {
        const uint64_t address = stack->addresses[i];
        if (!holds(&last, address)) {
            ms_intern_lock();
            last_id = module_at(address, stack->generation);
            last = last_id != 0 ? ((struct module *)modules.base)[last_id].is
                                : (struct ms_native_module){0};
            ms_intern_unlock();
        }
        if (last_id == 0) {
            last_id = meet_module(address, stack->generation, trace, &last);
        }
        out->ids[i] = last_id;
    }
}

/* --- Code objects ----------------------------------------------------------------------------- */

/* The name and definition of a code object: too large for any stack. Guarded by the lock. */
static struct ms_python_code reading MS_GUARDED_BY(*MS_LOCK(SITES));
static union {
    struct ms_code_definition is;
    uint8_t bytes[sizeof(struct ms_code_definition) + sizeof(reading.file) +
                  sizeof(reading.function) + sizeof(reading.table)];
} recording;

static uint32_t passed MS_GUARDED_BY(*MS_LOCK(SITES));

static bool define_code(ms_trace_t *trace, uint32_t id) MS_REQUIRES(*MS_LOCK(SITES))
{
    uint8_t *at = recording.bytes + sizeof(recording.is);
    recording.is = (struct ms_code_definition){.id = id,
                                               .version = reading.version,
                                               .first_line = reading.first_line,
                                               .file_bytes = (uint32_t)reading.file_bytes,
                                               .function_bytes = (uint32_t)reading.function_bytes,
                                               .table_bytes = (uint32_t)reading.table_bytes};
    memcpy(at, reading.file, reading.file_bytes);
    at += reading.file_bytes;
    memcpy(at, reading.function, reading.function_bytes);
    at += reading.function_bytes;
    memcpy(at, reading.table, reading.table_bytes);
    at += reading.table_bytes;
    return ms_trace_define(trace, MS_DEFINE_CODE, &recording, (size_t)(at - recording.bytes));
}

/* A function merely named `step` may be a training loop's, so it does not count as an
 * optimizer's. */
static int memory_of(const struct ms_frame_hints *hints)
{
    if (hints->hint == MS_HINT_MODULE || hints->hint == MS_HINT_BACKWARD) {
        return THE_MODELS;
    }
    const bool state = (hints->passed & MS_PASSED_STATE) != 0;
    return state || hints->hint == MS_HINT_OPTIMIZER ? THE_OPTIMIZERS : NOBODYS;
}

/* False: no room. *id is 0 for a code object that cannot be read. */
static bool intern_code(const struct ms_python_frame *frame, ms_trace_t *trace, uint32_t *id)
    MS_REQUIRES(*MS_LOCK(SITES))
{
    struct known_code *known = codes.base;
    const uint64_t hash = ms_mix(ms_mix(0, frame->code), frame->identity);
    struct ms_probe probe = ms_probe(&code_index, hash);
    while ((*id = ms_probe_next(&probe)) != 0) {
        if (known[*id].address == frame->code && known[*id].identity == frame->identity) {
            return true;
        }
    }
    if (frame->code == 0 || !ms_python_code(frame->code, &reading)) {
        return true;
    }
    const uint32_t next = code_count + 1;
    if (!ms_pages_reach(&codes, (next + 1) * sizeof(*known)) || !define_code(trace, next) ||
        !ms_index_add(&code_index, hash, next)) {
        return false;
    }
    const struct ms_frame_hints hints = ms_frame_hints_of(reading.file, reading.function);
    passed |= hints.passed;
    known[next] = (struct known_code){frame->code, frame->identity, memory_of(&hints)};
    *id = code_count = next;
    return true;
}

uint32_t ms_intern_passed(void)
{
    ms_intern_lock();

    const uint32_t all = passed;

    ms_intern_unlock();
    return all;
}

/* --- Trees ------------------------------------------------------------------------------------ */

static const struct stack_link *links_of(const struct tree *tree)
{
    return tree->links.base;
}

static uint32_t first_of_run(const struct stack_link *links, uint32_t node)
{
    return (links[node].to & FIRST) != 0 ? node : links[node].to;
}

static uint32_t caller_of(const struct stack_link *links, uint32_t node)
{
    return (links[node].to & FIRST) != 0 ? links[node].to & ~FIRST : node - 1;
}

/* Iterates over the nodes that a caller has called: the next one in its run, and first nodes of
 * other runs. */
struct callees {
    const struct stack_link *links;
    struct ms_probe probe;
    uint32_t caller, follower;
};

static struct callees callees_of(const struct tree *tree, uint32_t caller, uint64_t hash)
{
    const struct stack_link *links = links_of(tree);
    const bool followed =
        caller != 0 && caller < tree->count && caller_of(links, caller + 1) == caller;
    return (struct callees){links, ms_probe(&tree->index, hash), caller, followed ? caller + 1 : 0};
}

/* 0: no more. */
static uint32_t next_callee(struct callees *callees)
{
    uint32_t node = callees->follower;
    callees->follower = 0;
    while (node == 0 && (node = ms_probe_next(&callees->probe)) != 0) {
        if (caller_of(callees->links, node) == callees->caller) {
            break;
        }
        node = 0;
    }
    return node;
}

/* Makes room for the next node; 0: none. */
static uint32_t next_node(struct tree *tree, size_t frame_bytes)
{
    const uint32_t node = tree->count + 1;
    const bool room = node < NODES_MAX && ms_pages_reach(&tree->frames, (node + 1) * frame_bytes) &&
                      ms_pages_reach(&tree->links, (node + 1) * sizeof(struct stack_link));
    return room ? node : 0;
}

/* Adds the node. Its frame has been written and recorded. */
static bool add_node(struct tree *tree, uint32_t node, uint64_t hash, uint32_t caller,
                     uint32_t names)
{
    struct stack_link *links = tree->links.base;
    const bool follows = caller != 0 && caller == node - 1;
    links[node] =
        (struct stack_link){follows ? first_of_run(links, caller) : caller | FIRST, names};
    tree->count = node;
    return follows || ms_index_add(&tree->index, hash, node);
}

/* A node of the native tree is identified by its caller, its address, and the module there: another
 * module at the same address makes another node. */
static uint32_t find_native(uint64_t hash, uint32_t caller, uint64_t address, uint32_t module)
{
    const uint64_t *frames = natives.frames.base;
    struct callees callees = callees_of(&natives, caller, hash);
    uint32_t node;
    while ((node = next_callee(&callees)) != 0 &&
           (frames[node] != address || callees.links[node].names != module)) {
    }
    return node;
}

static bool add_native(uint64_t hash, uint32_t caller, uint64_t address, uint32_t module,
                       ms_trace_t *trace, uint32_t *node)
{
    const struct module *known = modules.base;
    *node = next_node(&natives, sizeof(address));
    if (*node == 0) {
        return false;
    }
    ((uint64_t *)natives.frames.base)[*node] = address;
    const struct ms_native_definition recorded = {
        .id = *node,
        .caller = caller,
        .module = module,
        .address = module != 0 ? address - known[module].is.base : address};
    return ms_trace_define(trace, MS_DEFINE_NATIVE, &recorded, sizeof(recorded)) &&
           add_node(&natives, *node, hash, caller, module);
}

bool ms_intern_native(const struct ms_native_stack *stack, const struct ms_stack_modules *in,
                      ms_trace_t *trace, uint32_t *node)
{
    *node = 0;
    for (uint32_t i = stack->count; i-- > 0;) {
        const uint32_t caller = *node;
        const uint64_t hash = ms_mix(ms_mix(caller, stack->addresses[i]), in->ids[i]);
        *node = find_native(hash, caller, stack->addresses[i], in->ids[i]);
        if (*node == 0 && !add_native(hash, caller, stack->addresses[i], in->ids[i], trace, node)) {
            return false;
        }
    }
    return true;
}

/* 0 if they are the same. Without branches, because most are. */
static uint64_t difference(const struct ms_python_frame *a, const struct ms_python_frame *b)
{
    return (a->code ^ b->code) | (a->identity ^ b->identity) | (a->instruction ^ b->instruction) |
           (a->flags ^ b->flags);
}

static bool same_frame(const struct ms_python_frame *a, const struct ms_python_frame *b)
{
    return difference(a, b) == 0;
}

static uint32_t find_python(uint64_t hash, uint32_t caller, const struct ms_python_frame *frame)
{
    const struct ms_python_frame *frames = pythons.frames.base;
    struct callees callees = callees_of(&pythons, caller, hash);
    uint32_t node;
    while ((node = next_callee(&callees)) != 0 && !same_frame(&frames[node], frame)) {
    }
    return node;
}

static bool add_python(uint64_t hash, uint32_t caller, const struct ms_python_frame *frame,
                       ms_trace_t *trace, uint32_t *node) MS_REQUIRES(*MS_LOCK(SITES))
{
    uint32_t code = 0;
    *node = next_node(&pythons, sizeof(*frame));
    if (*node == 0 || !intern_code(frame, trace, &code)) {
        return false;
    }
    ((struct ms_python_frame *)pythons.frames.base)[*node] = *frame;
    const struct ms_python_definition recorded = {.id = *node,
                                                  .caller = caller,
                                                  .code = code,
                                                  .instruction = frame->instruction,
                                                  .flags = frame->flags};
    return ms_trace_define(trace, MS_DEFINE_PYTHON, &recorded, sizeof(recorded)) &&
           add_node(&pythons, *node, hash, caller, code);
}

bool ms_intern_python(const struct ms_python_stack *stack, ms_trace_t *trace, uint32_t *node)
{
    *node = stack->node;
    for (uint32_t i = *node != 0 ? 0 : stack->count; i-- > 0;) {
        const struct ms_python_frame *frame = &stack->frames[i];
        const uint32_t caller = *node;
        const uint64_t hash = ms_mix(ms_mix(ms_mix(caller, frame->code), frame->identity),
                                     (uint64_t)frame->flags << 32 | frame->instruction);
        *node = find_python(hash, caller, frame);
        if (*node == 0 && !add_python(hash, caller, frame, trace, node)) {
            return false;
        }
    }
    return true;
}

bool ms_intern_is_optimizers(uint32_t node)
{
    const struct stack_link *links = links_of(&pythons);
    const struct known_code *known = codes.base;
    int memory = NOBODYS;
    for (; node != 0 && memory == NOBODYS; node = caller_of(links, node)) {
        const uint32_t code = links[node].names;
        memory = code != 0 ? (int)known[code].memory : NOBODYS;
    }
    return memory == THE_OPTIMIZERS;
}

/* --- Comparing -------------------------------------------------------------------------------- */

bool ms_intern_is_native(uint32_t node, const struct ms_native_stack *stack)
{
    const struct stack_link *links = links_of(&natives);
    const uint64_t *frames = natives.frames.base;
    const uint64_t *wanted = stack->addresses;
    uint32_t left = stack->count;
    while (node != 0) {
        const uint32_t first = first_of_run(links, node), run = node - first + 1;
        uint64_t differing = 0;
        if (run > left) {
            return false;
        }
        const uint64_t *kept = &frames[node];
        for (const uint64_t *end = wanted + run; wanted < end; wanted++, kept--) {
            differing |= *kept ^ *wanted;
        }
        if (differing != 0) {
            return false;
        }
        left -= run;
        node = caller_of(links, first);
    }
    return left == 0;
}

bool ms_intern_has_frames(uint32_t node, const struct ms_python_stack *stack)
{
    const struct stack_link *links = links_of(&pythons);
    const struct ms_python_frame *frames = pythons.frames.base;
    const struct ms_python_frame *wanted = stack->frames;
    uint32_t left = stack->count;
    while (node != 0) {
        const uint32_t first = first_of_run(links, node), run = node - first + 1;
        if (run > left) {
            return false;
        }
        uint64_t differing = 0;
        const struct ms_python_frame *kept = &frames[node];
        for (const struct ms_python_frame *end = wanted + run; wanted < end; wanted++, kept--) {
            differing |= difference(kept, wanted);
        }
        if (differing != 0) {
            return false;
        }
        left -= run;
        node = caller_of(links, first);
    }
    return left == 0;
}
