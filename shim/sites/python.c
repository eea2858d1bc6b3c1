#include "shim/sites/python.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "report/definitions.h"
#include "shim/sites/native.h"
#include "shim/sites/python_interpreter.h"

/* Frames are read with plain loads once that many stacks of the process have looked as they should;
 * before, and after one that did not, by asking the kernel for each word. */
#define TRUSTED_AFTER 64u

static atomic_uint clean; /* stacks in a row that looked as they should */

static _Thread_local struct ms_python_frame frames[MS_STACK_DEPTH_MAX]
    __attribute__((tls_model("initial-exec")));

/* An address that an object of the heap or of a library can have: aligned, in the lower half, not
 * near zero. */
static inline bool plausible(uint64_t at)
{
    enum { FIRST = 4096, ALIGNMENT = 8 };
    return at % ALIGNMENT == 0 && at - FIRST < (UINT64_C(1) << 47) - FIRST;
}

static inline bool load(uint64_t at, void *to, size_t bytes, bool trusted)
{
    if (trusted) {
        memcpy(to, (const void *)at, bytes);
        return true;
    }
    return ms_python_read(at, to, bytes);
}

struct link {
    uint64_t code, previous;
    uint64_t instruction; /* as the frame has it */
    bool entry, shim;
};

static inline __attribute__((always_inline)) bool
read_link(const struct ms_python_layout *layout, uint64_t frame, struct link *out, bool trusted)
{
    uint8_t mark = 0;
    int32_t last = 0;
    bool objects = layout->chain == MS_PYTHON_OBJECTS;
    if (!plausible(frame) || !load(frame + layout->frame.code, &out->code, 8, trusted) ||
        !load(frame + layout->frame.previous, &out->previous, 8, trusted)) {
        return false;
    }
    if (objects) {
        if (!load(frame + layout->frame.instruction, &last, sizeof(last), trusted)) {
            return false;
        }
        out->instruction = last > 0 ? (uint64_t)last * layout->scale : 0;
    } else if (!load(frame + layout->frame.instruction, &out->instruction, 8, trusted) ||
               !load(frame + layout->frame.entry, &mark, 1, trusted)) {
        return false;
    }
    out->entry = objects || (layout->chain == MS_PYTHON_MARKED && mark != 0);
    out->shim = layout->chain == MS_PYTHON_SHIMS && mark >= 3; /* FRAME_OWNED_BY_CSTACK, 3.12 */
    out->code &= ~UINT64_C(7); /* 3.14 tags references in their low bits */
    return true;
}

/* Another function at the same address has other names, another table, another length; where all
 * of these came to lie where the old ones did, it is the same text compiled once more. */
static inline uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

static inline __attribute__((always_inline)) bool
read_code(const struct ms_python_interpreter *python, const struct link *link,
          struct ms_python_frame *out, bool trusted)
{
    const struct ms_python_layout *layout = &python->layout;
    uint64_t type = 0, file = 0, function = 0, table = 0, body = 0;
    uint32_t first_line = 0;
    uint64_t code = link->code;
    if (!plausible(code) || !load(code + MS_PYTHON_TYPE, &type, 8, trusted) ||
        type != python->code_type ||
        !load(code + layout->code.first_line, &first_line, sizeof(first_line), trusted) ||
        !load(code + layout->code.file, &file, 8, trusted) ||
        !load(code + layout->code.function, &function, 8, trusted) ||
        !load(code + layout->code.table, &table, 8, trusted) ||
        !load(code + layout->code.body, &body, 8, trusted)) {
        return false;
    }
    uint64_t instruction = link->instruction;
    if (layout->chain != MS_PYTHON_OBJECTS) {
        /* A frame that has not begun yet points before its code. */
        instruction -= code + layout->code.begin;
        instruction = instruction < body * 2 ? instruction : 0;
    }
    *out = (struct ms_python_frame){.code = code,
                                    .identity =
                                        mix(mix(mix(table, function), file), body) ^ first_line,
                                    .instruction = (uint32_t)instruction,
                                    .flags = link->entry ? MS_PYTHON_ENTRY : 0};
    return true;
}

static inline __attribute__((always_inline)) void walk(const struct ms_python_interpreter *python,
                                                       uint64_t frame, uint32_t depth, bool trusted,
                                                       struct ms_python_stack *out)
{
    uint32_t steps = 2 * MS_STACK_DEPTH_MAX; /* a chain that runs in a circle ends */
    struct link link;
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
        } else if (!read_code(python, &link, &frames[out->count], trusted)) {
            out->lost = true;
            return;
        } else {
            out->count++;
        }
        frame = link.previous;
    }
    if (out->count > 0) {
        frames[out->count - 1].flags |= MS_PYTHON_ENTRY;
    }
}

/* In versions before 3.12 a thread in a sub-interpreter runs with another thread state than
 * GILState's. It is known only while the thread holds the GIL: the running one, and its own. It
 * may be another thread's that frees it right now, so it is not simply looked into. */
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
    if (!plausible(thread) || !load(thread + layout->thread.frame, out, 8, trusted)) {
        return false;
    }
    return !layout->cframe ||
           (plausible(*out) && load(*out + layout->cframe_frame, out, 8, trusted));
}

static void note(const struct ms_python_stack *stack)
{
    if (stack->lost) {
        atomic_store_explicit(&clean, 0, memory_order_relaxed);
    } else if (stack->count > 0) {
        atomic_fetch_add_explicit(&clean, 1, memory_order_relaxed);
    }
}

void ms_python_capture(uint32_t depth, struct ms_python_stack *out)
{
    *out = (struct ms_python_stack){.frames = frames};
    const struct ms_python_interpreter *python = ms_python_interpreter();
    if (python == NULL || python->finalizing()) {
        return;
    }
    bool trusted = atomic_load_explicit(&clean, memory_order_relaxed) >= TRUSTED_AFTER;
    bool known = trusted;
    uint64_t thread = thread_state(python, &trusted), frame;
    if (thread == 0) {
        return;
    }
    out->interpreter = true;
    if (!innermost(&python->layout, thread, trusted, &frame)) {
        out->lost = true;
    } else if (trusted) {
        walk(python, frame, depth, true, out);
    } else {
        walk(python, frame, depth, false, out);
    }
    if (!known || out->lost) {
        note(out);
    }
    for (uint32_t i = 0; i < out->count; i++) {
        uint64_t place = (uint64_t)frames[i].instruction << 1 | frames[i].flags;
        out->hash = mix(out->hash + place, frames[i].identity ^ frames[i].code);
    }
}
