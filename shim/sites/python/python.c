/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the calling thread's Python frames. */
#include "shim/sites/python/python.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "report/trace/definitions.h"
#include "shim/sites/native/native.h"
#include "shim/sites/native/thread_memory.h"
#include "shim/sites/python/python_interpreter.h"
#include "shim/sites/python/python_known.h"

/* Frames are read with plain loads once this many stacks in a row were sound. Before that, and
 * after an unsound one, the kernel is asked for each word. */
#define TRUSTED_AFTER 64u

static atomic_uint clean; /* sound stacks in a row */

/* A thread's memory; it lasts as long as the thread. */
struct python_memory {
    struct ms_thread_memory is;
    uint64_t last; /* the innermost frame of the last stack, if that can be remembered; else 0 */
    struct ms_python_frame frames[MS_STACK_DEPTH_MAX];
    struct ms_python_known known;
};
static _Thread_local __attribute__((tls_model("initial-exec"))) struct python_memory *mine;
static ms_thread_memories_t memories;

/* Whether an object of the heap or of a library can have this address: aligned, in the lower half,
 * not near zero. */
static inline bool plausible(uint64_t at)
{
    enum { FIRST = 4096, ALIGNMENT = 8 };
    return at % ALIGNMENT == 0 && at - FIRST < (UINT64_C(1) << 47) - FIRST;
}

/* The beginning of an object: the object itself, or a copy in `room`. Null: not readable. */
static inline __attribute__((always_inline)) const char *checked_read(uint64_t at, uint32_t bytes,
                                                                      char *room, bool trusted)
{
    if (!plausible(at)) {
        return NULL;
    }
    if (trusted) {
        return (const char *)at;
    }
    return ms_python_read(at, room, bytes) ? room : NULL;
}

struct python_link {
    uint64_t code, previous;
    uint64_t instruction; /* OBJECTS: offset in the code; otherwise its address */
    bool entry, shim;
};

static inline __attribute__((always_inline)) bool
read_link(const struct ms_python_layout *layout, uint64_t at, struct python_link *out, bool trusted)
{
    char room[MS_PYTHON_READ_BYTES];
    const char *frame = checked_read(at, layout->frame.bytes, room, trusted);
    if (frame == NULL) {
        return false;
    }
    out->code = ms_python_code_address(ms_python_word(frame, layout->frame.code));
    out->previous = ms_python_word(frame, layout->frame.previous);
    if (layout->chain == MS_PYTHON_OBJECTS) {
        int32_t last = (int32_t)ms_python_half(frame, layout->frame.instruction);
        out->instruction = last > 0 ? (uint64_t)last * layout->scale : 0;
        out->entry = true;
        out->shim = false;
    } else {
        bool marked = layout->chain == MS_PYTHON_MARKED;
        out->instruction = ms_python_word(frame, layout->frame.instruction);
        out->entry = marked && frame[layout->frame.entry] != 0;
        out->shim = ms_python_is_shim(layout, (uint8_t)frame[layout->frame.entry]);
    }
    return true;
}

static inline uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

/* Another function at the same address has other names, another table, or another length. One case
 * is not recognized: code that was freed and made anew, with its names and table where the old ones
 * were. */
enum sight { NOTHING, OWN_BUSINESS, FUNCTION };

static inline __attribute__((always_inline)) enum sight
read_code(const struct ms_python_interpreter *python, const struct python_link *link,
          struct ms_python_frame *out, bool trusted)
{
    const struct ms_python_layout *layout = &python->layout;
    char room[MS_PYTHON_READ_BYTES];
    const char *code = checked_read(link->code, layout->code.bytes, room, trusted);
    if (code == NULL || ms_python_word(code, MS_PYTHON_TYPE) != python->code_type) {
        return NOTHING;
    }
    uint64_t body = ms_python_word(code, layout->code.body);
    uint64_t instruction = link->instruction;
    if (layout->chain != MS_PYTHON_OBJECTS) {
        /* A frame that has not begun points before its code. */
        instruction -= link->code + layout->code.begin;
        instruction = instruction < body * 2 ? instruction : 0;
    }
    uint64_t file = ms_python_word(code, layout->code.file),
             function = ms_python_word(code, layout->code.function);
    uint32_t first_line = ms_python_half(code, layout->code.first_line);
    out->code = link->code;
    out->identity = mix(
        mix(ms_python_word(code, layout->code.table) + first_line, file ^ function << 16), body);
    out->instruction = (uint32_t)instruction;
    out->flags = link->entry ? MS_PYTHON_ENTRY : 0;
    /* From 3.13 on the interpreter puts a frame of its own between a class and its __init__
     * (_Py_InitCleanup). Its file is the function's name, without lines. */
    return first_line == 0 && file == function ? OWN_BUSINESS : FUNCTION;
}

static inline __attribute__((always_inline)) void walk(const struct ms_python_interpreter *python,
                                                       uint64_t frame, uint32_t depth, bool trusted,
                                                       struct ms_python_frame *frames,
                                                       struct ms_python_stack *out)
{
    uint32_t steps = 2 * MS_STACK_DEPTH_MAX; /* so that a circular chain ends */
    struct python_link link;
    while (frame != 0) {
        if (steps-- == 0 || !read_link(&python->layout, frame, &link, trusted)) {
            out->lost = true;
            return;
        }
        if (link.shim) {
            if (out->count > 0) {
                frames[out->count - 1].flags |= MS_PYTHON_ENTRY;
            }
        } else if (out->count == depth) {
            out->cut = true;
            return;
        } else {
            enum sight sight = read_code(python, &link, &frames[out->count], trusted);
            if (sight == NOTHING) {
                out->lost = true;
                return;
            }
            out->count += sight == FUNCTION;
        }
        frame = link.previous;
    }
    if (out->count > 0) {
        frames[out->count - 1].flags |= MS_PYTHON_ENTRY;
    }
}

/* Before 3.12, a thread in a sub-interpreter runs with another thread state than GILState's. That
 * state is known only while the thread holds the GIL: the running thread state is then its own. If
 * another thread holds it, that one may free it at any time, so it is not simply read. */
static uint64_t thread_state(const struct ms_python_interpreter *python, bool *trusted)
{
    uint64_t own = (uint64_t)python->own_thread();
    if (python->layout.active || python->last_interpreter() == python->main_interpreter()) {
        return own;
    }
    uint64_t running = (uint64_t)python->running_thread();
    uint64_t id = 0;
    if (running == own || running == 0 ||
        !ms_python_read(running + python->layout.thread.id, &id, sizeof(id)) ||
        id != (uint64_t)pthread_self()) {
        return own;
    }
    *trusted = false;
    return running;
}

static bool innermost(const struct ms_python_layout *layout, uint64_t thread, bool trusted,
                      uint64_t *out)
{
    char room[sizeof(uint64_t)];
    const char *frame = checked_read(thread + layout->thread.frame, sizeof(room), room, trusted);
    if (frame != NULL && layout->cframe) {
        frame = checked_read(ms_python_word(frame, 0) + layout->cframe_frame, sizeof(room), room,
                             trusted);
    }
    *out = frame != NULL ? ms_python_word(frame, 0) : 0;
    return frame != NULL;
}

static void note(const struct ms_python_stack *stack)
{
    if (stack->lost) {
        atomic_store_explicit(&clean, 0, memory_order_relaxed);
    } else if (stack->count > 0) {
        atomic_fetch_add_explicit(&clean, 1, memory_order_relaxed);
    }
}

uint64_t ms_python_hash(const struct ms_python_stack *stack)
{
    uint64_t hash = stack->hash;
    if (stack->node != 0) {
        return hash;
    }
    for (uint32_t i = 0; i < stack->count; i++) {
        const struct ms_python_frame *frame = &stack->frames[i];
        const uint64_t place = (uint64_t)frame->instruction << 1 | frame->flags;
        hash = mix(hash + place, frame->identity ^ frame->code);
    }
    return hash;
}

static inline bool recall(const struct ms_python_layout *layout, uint64_t frame,
                          struct ms_python_stack *out)
{
    const struct ms_python_known_frame *known = ms_python_known_find(&mine->known, layout, frame);
    if (known == NULL) {
        return false;
    }
    out->node = known->node;
    out->count = known->count;
    out->hash = known->hash;
    return true;
}

/* may_recall: a stack that the thread remembers is not read again. */
static __attribute__((noinline)) void capture_from(const struct ms_python_interpreter *python,
                                                   uint32_t depth, bool may_recall,
                                                   struct ms_python_stack *out)
{
    if (python->finalizing()) {
        return;
    }
    bool trusted = atomic_load_explicit(&clean, memory_order_relaxed) >= TRUSTED_AFTER;
    bool known = trusted;
    uint64_t thread = thread_state(python, &trusted), frame;
    if (thread == 0) {
        return;
    }
    out->interpreter = true;
    if (__builtin_expect(mine == NULL, 0)) {
        mine = ms_thread_memory_claim(&memories, sizeof(*mine));
    }
    if (mine == NULL) {
        out->lost = true;
        return;
    }
    struct ms_python_frame *frames = mine->frames;
    mine->last = 0;
    if (!innermost(&python->layout, thread, trusted, &frame)) {
        out->lost = true;
    } else if (trusted) {
        may_recall &= python->layout.chain != MS_PYTHON_OBJECTS && plausible(frame);
        if (may_recall && recall(&python->layout, frame, out)) {
            return;
        }
        walk(python, frame, depth, true, frames, out);
        mine->last = may_recall && !out->lost && !out->cut ? frame : 0;
    } else {
        walk(python, frame, depth, false, frames, out);
    }
    out->frames = frames;
    if (!known || out->lost) {
        note(out);
    }
}

static inline void capture(uint32_t depth, bool may_recall, struct ms_python_stack *out)
{
    const struct ms_python_interpreter *python = ms_python_interpreter();
    *out = (struct ms_python_stack){0};
    if (python != NULL) {
        capture_from(python, depth, may_recall, out);
    }
}

void ms_python_capture(uint32_t depth, struct ms_python_stack *out)
{
    capture(depth, false, out);
}

void ms_python_recall(uint32_t depth, struct ms_python_stack *out)
{
    capture(depth, true, out);
}

void ms_python_remember(const struct ms_python_stack *stack, uint32_t node)
{
    const struct ms_python_interpreter *python = ms_python_interpreter();
    if (python != NULL && mine != NULL && mine->last != 0 && node != 0) {
        ms_python_known_remember(&mine->known, &python->layout, mine->last, node, stack->count,
                                 ms_python_hash(stack));
        mine->last = 0;
    }
}
