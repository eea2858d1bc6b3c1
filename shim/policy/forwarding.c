/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the stack of a call: which library called the runtime, and from which line of Python. */
#include "shim/policy/forwarding.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "report/trace/python_line.h"
#include "shim/driver/caller.h"
#include "shim/driver/elf.h"
#include "shim/process/guard.h"
#include "shim/sites/native/native.h"
#include "shim/sites/python/python.h"
#include "shim/tables/options.h"

/* NCCL as a library of its own. Searched again only after libraries were loaded. */
static bool nccl_is_loaded(void)
{
    static _Atomic uint64_t looked_at;
    static _Atomic bool loaded;
    struct ms_loaded_elf elf;
    uint64_t generation = ms_elf_generation();
    if (atomic_load(&looked_at) != generation) {
        atomic_store(&loaded, ms_elf_defining("ncclCommInitRank", &elf));
        atomic_store(&looked_at, generation);
    }
    return atomic_load(&loaded);
}

/* --- the native stack ------------------------------------------------------------------------- */

/* Decides by the innermost frames that are not the runtime's. Where NCCL is linked into a library,
 * these are all the frames of that library, otherwise a single frame. */
static bool nccl_asked(const struct ms_native_stack *stack)
{
    for (uint32_t i = 0; i < stack->count; i++) {
        const struct ms_library_facts facts =
            ms_library_facts_at((const void *)(uintptr_t)(stack->addresses[i] - 1));
        if (facts.is_nccl) {
            return true;
        }
        if (facts.library != MS_LIBRARY_RUNTIME && !facts.has_nccl) {
            return false;
        }
    }
    return false;
}

static bool library_asked(const struct ms_native_stack *stack)
{
    for (uint32_t i = 0; i < stack->count; i++) {
        if (ms_library_facts_at((const void *)(uintptr_t)(stack->addresses[i] - 1)).named) {
            return true;
        }
    }
    return false;
}

/* --- lines of Python -------------------------------------------------------------------------- */

/* Whether an item is FILE:LINE; *file_bytes is the length of FILE. */
static bool is_line(const char *item, size_t bytes, size_t *file_bytes, unsigned long *line)
{
    const char *colon = memrchr(item, ':', bytes);
    char *end = NULL;
    if (!colon) {
        return false;
    }
    *file_bytes = (size_t)(colon - item);
    *line = strtoul(colon + 1, &end, 10);
    return *file_bytes > 0 && end == item + bytes && end > colon + 1;
}

/* Whether `file` is the code's file name, or the end of its path. */
static bool is_file(const struct ms_python_code *code, const char *file, size_t bytes)
{
    const char *begin = code->file + code->file_bytes - bytes;
    return bytes <= code->file_bytes && memcmp(begin, file, bytes) == 0 &&
           (begin == code->file || begin[-1] == '/');
}

static bool is_listed(const struct ms_python_code *code, unsigned long line)
{
    const char *at = ms_options()->forward;
    while (*at != '\0') {
        const size_t bytes = strcspn(at, ",");
        size_t file_bytes = 0;
        unsigned long wanted = 0;
        if (is_line(at, bytes, &file_bytes, &wanted) && wanted == line &&
            is_file(code, at, file_bytes)) {
            return true;
        }
        at += bytes + (at[bytes] == ',');
    }
    return false;
}

static bool line_asked(void)
{
    static _Thread_local __attribute__((tls_model("initial-exec"))) struct ms_python_code *code;
    struct ms_python_stack stack;
    if (!strchr(ms_options()->forward, ':')) {
        return false;
    }
    code = code ? code : malloc(sizeof *code); /* too large for a thread's stack; kept */
    ms_python_capture(ms_options()->stack_depth, &stack);
    for (uint32_t i = 0; code && i < stack.count; i++) {
        if (stack.frames[i].code != 0 && ms_python_code(stack.frames[i].code, code)) {
            const struct ms_code_definition is = {.version = code->version,
                                                  .first_line = code->first_line,
                                                  .table_bytes = (uint32_t)code->table_bytes};
            if (is_listed(code, ms_python_line(&is, code->table, stack.frames[i].instruction))) {
                return true;
            }
        }
    }
    return false;
}

static __attribute__((noinline, cold)) enum ms_forwarding by_stack(bool may_be_nccl, bool asked)
{
    struct ms_native_stack stack;
    ms_native_capture(ms_options()->stack_depth, &stack);
    if (may_be_nccl && nccl_asked(&stack)) {
        return MS_FORWARDING_NCCL;
    }
    return asked && (library_asked(&stack) || line_asked()) ? MS_FORWARDING_ASKED
                                                            : MS_FORWARDING_NOT;
}

enum ms_forwarding ms_forwarding_of_call(void)
{
    const struct ms_library_facts caller = ms_library_facts_at(ms_caller());
    const bool asked = ms_options()->forward != NULL;
    if (caller.library == MS_LIBRARY_NCCL) {
        return MS_FORWARDING_NCCL;
    }
    const bool may_be_nccl =
        caller.has_nccl || (caller.library == MS_LIBRARY_RUNTIME && nccl_is_loaded());
    return may_be_nccl || asked ? by_stack(may_be_nccl, asked) : MS_FORWARDING_NOT;
}
