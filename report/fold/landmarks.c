/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the call sites that pass through the functions in frame_hints.h. */
#include "report/fold/landmarks.h"

#include "allocator/base/buffer.h"
#include "allocator/base/containers/pages.h"

#define MOST_NODES (1u << 24) /* for the ids of a damaged trace */

/* One function. */
struct hinted_code {
    bool known;
    struct ms_frame_hints is;
};

/* A frame with its callers. */
struct frame_node {
    bool known;
    uint8_t hint;
    uint32_t passed;
    uint32_t caller;
};

struct ms_landmarks {
    const ms_definitions_t *definitions;
    struct ms_buffer codes, nodes, sites; /* by id */
    struct ms_buffer path;                /* uint32_t: used while a stack is walked */
    uint32_t first_call;
    bool passes_back; /* a site is of a backward pass */
    bool loops_aside; /* models are called, and all of the calls are on threads that the program
                         started: its loop runs there */
};

/* ---- tables ---- */

/* The element of a growing table; null: memory ran out, or the id is out of range. */
static void *at(struct ms_buffer *table, uint32_t id, size_t bytes)
{
    const size_t end = ((size_t)id + 1) * bytes;

    if (id >= MOST_NODES) {
        return NULL;
    }
    if (end > table->bytes) {
        const size_t more = end - table->bytes;

        if (!ms_buffer_extend(table, more > table->bytes ? more : table->bytes)) {
            return NULL;
        }
    }
    return table->at + (size_t)id * bytes;
}

static struct hinted_code *code_of(struct ms_landmarks *landmarks, uint32_t id)
{
    struct hinted_code *code = at(&landmarks->codes, id, sizeof(*code));
    const struct ms_code_read *read = ms_definitions_code(landmarks->definitions, id);

    if (code && !code->known && read) {
        code->known = true;
        code->is = ms_frame_hints_of(read->file, read->function);
    }
    return code;
}

/* ---- stacks ---- */

/* A function named step that calls a model or a backward is a training loop's, not an optimizer's:
 * removes its hint. */
static void clear_loop_hints(struct ms_landmarks *landmarks, uint32_t node)
{
    const struct ms_python_definition *is;
    bool called = false;

    /* A caller's number is smaller, so this ends. */
    for (; (is = ms_definitions_python(landmarks->definitions, node)); node = is->caller) {
        struct hinted_code *code = code_of(landmarks, is->code);

        if (!code) {
            return;
        }
        landmarks->passes_back = landmarks->passes_back || code->is.hint == MS_HINT_BACKWARD;
        if (code->is.hint == MS_HINT_MODULE || code->is.hint == MS_HINT_BACKWARD) {
            called = true;
        } else if (code->is.hint == MS_HINT_OPTIMIZER) {
            called = false; /* a closure: only its other calls count for the optimizer's caller */
        } else if (code->is.hint == MS_HINT_STEP && called) {
            code->is.hint = MS_HINT_NONE;
        }
    }
}

/* An optimizer needs gradients. Where no backward pass asked for memory, a function named step is a
 * simulation's, a server's or a loop's. */
static void clear_hints_without_gradients(struct ms_landmarks *landmarks)
{
    struct hinted_code *codes = (struct hinted_code *)landmarks->codes.at;

    for (size_t i = 0; !landmarks->passes_back && i < landmarks->codes.bytes / sizeof(*codes);
         i++) {
        if (codes[i].is.hint == MS_HINT_STEP) {
            codes[i].is.hint = MS_HINT_NONE;
        }
    }
}

/* The innermost hint counts. Of several frames with that hint the outermost is the one that the
 * program called. */
static struct frame_node under(const struct frame_node *caller, const struct hinted_code *code,
                               uint32_t caller_id)
{
    struct frame_node node = *caller;
    const bool optimizes = caller->hint == MS_HINT_OPTIMIZER || caller->hint == MS_HINT_STEP;

    node.known = true;
    node.passed |= code->is.passed;
    switch (code->is.hint) {
    case MS_HINT_MODULE:
        node.passed |= MS_PASSED_MODULE;
        if (caller->hint != MS_HINT_MODULE && caller->hint != MS_HINT_BACKWARD) {
            node.hint = MS_HINT_MODULE;
            node.caller = caller_id;
        }
        break;
    case MS_HINT_BACKWARD:
        node.hint = MS_HINT_BACKWARD;
        break;
    case MS_HINT_OPTIMIZER:
    case MS_HINT_STEP:
        node.hint = caller->hint == MS_HINT_OPTIMIZER ? MS_HINT_OPTIMIZER : code->is.hint;
        node.caller = optimizes ? caller->caller : caller_id;
        break;
    default:
        break;
    }
    return node;
}

static struct frame_node read_node(struct ms_landmarks *landmarks, uint32_t id)
{
    struct ms_buffer *path = &landmarks->path;
    const struct ms_python_definition *is;
    struct frame_node above = {0};

    path->bytes = 0;
    for (uint32_t each = id; (is = ms_definitions_python(landmarks->definitions, each));
         each = is->caller) {
        const struct frame_node *node = at(&landmarks->nodes, each, sizeof(*node));

        if (!node) {
            return above;
        }
        if (node->known) {
            above = *node;
            break;
        }
        ms_buffer_append(path, (const char *)&each, sizeof(each));
    }
    for (size_t i = path->bytes / sizeof(uint32_t); i-- > 0;) {
        const uint32_t each = ((const uint32_t *)path->at)[i];
        struct frame_node *node = at(&landmarks->nodes, each, sizeof(*node));

        is = ms_definitions_python(landmarks->definitions, each);

        const struct hinted_code *code = code_of(landmarks, is->code);

        if (!code) {
            return above;
        }
        above = *node = under(&above, code, is->caller);
    }
    return above;
}

static uint8_t doing_of(const struct ms_landmarks *landmarks, const struct ms_site_definition *site,
                        const struct frame_node *node)
{
    if (site->flags & MS_SITE_SAMPLED_OUT) {
        return MS_DOING_UNKNOWN;
    }
    if (site->thread == MS_THREAD_BACKWARD || node->hint == MS_HINT_BACKWARD) {
        return MS_DOING_BACKWARD;
    }
    switch (node->hint) {
    case MS_HINT_MODULE:
        return MS_DOING_FORWARD;
    case MS_HINT_OPTIMIZER:
        return MS_DOING_OPTIMIZER;
    case MS_HINT_STEP:
        return MS_DOING_STEP;
    default:
        return !site->python || ((node->passed & MS_PASSED_THREAD) && !landmarks->loops_aside)
                   ? MS_DOING_ASIDE
                   : MS_DOING_OTHER;
    }
}

/* A server calls its model on threads of its own. */
static bool are_calls_aside(struct ms_landmarks *landmarks, uint32_t count)
{
    bool called = false;

    for (uint32_t id = 1; id <= count; id++) {
        const struct ms_site_definition *site = ms_definitions_site(landmarks->definitions, id);
        const struct frame_node node =
            site ? read_node(landmarks, site->python) : (struct frame_node){0};

        if (node.hint == MS_HINT_MODULE && site->thread != MS_THREAD_BACKWARD) {
            called = true;
            if (!(node.passed & MS_PASSED_THREAD)) {
                return false;
            }
        }
    }
    return called;
}

static bool read_all(struct ms_landmarks *landmarks)
{
    const uint32_t count = ms_definitions_site_count(landmarks->definitions);

    for (uint32_t id = 1; id <= count; id++) {
        const struct ms_site_definition *site = ms_definitions_site(landmarks->definitions, id);

        if (site) {
            landmarks->passes_back = landmarks->passes_back || site->thread == MS_THREAD_BACKWARD;
            clear_loop_hints(landmarks, site->python);
        }
    }
    clear_hints_without_gradients(landmarks);
    landmarks->loops_aside = are_calls_aside(landmarks, count);
    if (!ms_buffer_extend(&landmarks->sites, ((size_t)count + 1) * sizeof(struct ms_doings))) {
        return false;
    }
    for (uint32_t id = 1; id <= count; id++) {
        const struct ms_site_definition *site = ms_definitions_site(landmarks->definitions, id);

        if (site) {
            const struct frame_node node = read_node(landmarks, site->python);
            const uint8_t doing = doing_of(landmarks, site, &node);

            ((struct ms_doings *)landmarks->sites.at)[id] =
                (struct ms_doings){.doing = doing, .passed = node.passed, .caller = node.caller};
            if (doing == MS_DOING_FORWARD && id < landmarks->first_call) {
                landmarks->first_call = id;
            }
        }
    }
    return true;
}

/* ---- the whole ---- */

ms_landmarks_t *ms_landmarks_new(const ms_definitions_t *definitions)
{
    struct ms_landmarks *landmarks = ms_pages_map(sizeof(*landmarks));

    if (!landmarks) {
        return NULL;
    }
    landmarks->definitions = definitions;
    landmarks->first_call = UINT32_MAX;
    if (!read_all(landmarks)) {
        ms_landmarks_delete(landmarks);
        return NULL;
    }
    ms_buffer_free(&landmarks->codes);
    ms_buffer_free(&landmarks->nodes);
    ms_buffer_free(&landmarks->path);
    return landmarks;
}

void ms_landmarks_delete(ms_landmarks_t *landmarks)
{
    if (landmarks) {
        ms_buffer_free(&landmarks->codes);
        ms_buffer_free(&landmarks->nodes);
        ms_buffer_free(&landmarks->path);
        ms_buffer_free(&landmarks->sites);
        ms_pages_unmap(landmarks, sizeof(*landmarks));
    }
}

const struct ms_doings *ms_landmarks_of(const ms_landmarks_t *landmarks, uint32_t site)
{
    static const struct ms_doings nothing = {0};

    return site < landmarks->sites.bytes / sizeof(struct ms_doings)
               ? (const struct ms_doings *)landmarks->sites.at + site
               : &nothing;
}

uint32_t ms_landmarks_first_call(const ms_landmarks_t *landmarks)
{
    return landmarks->first_call;
}
