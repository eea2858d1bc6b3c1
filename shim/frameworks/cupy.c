/* SPDX-License-Identifier: Apache-2.0 */
/* CuPy's pool carves arrays out of its blocks without memshim's notice. But its memory hooks, which
 * are written in Python, see each array. A few lines of Python (cupy_hook.py) install one when CuPy
 * is imported.
 *
 * With Python's lock held, the importer asks each extension module's library for its PyInit
 * function, by dlsym. So memshim sees when the module of the hooks is imported. The module is ready
 * when the next one is asked for, and then the lines run. Python's start is unchanged: its path,
 * sitecustomize, and the effect of -I and -S. */
#include "shim/frameworks/cupy.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "shim/driver/elf.h"
#include "shim/hooks/serve.h"
#include "shim/process/guard.h"
#include "shim/process/log.h"
#include "shim/process/process.h"
#include "shim/process/session.h"
#include "shim/tables/options.h"

#define HOOKS_MODULE MS_PYTHON_MODULE "memory_hook"
#define HOOKS_PATH   "/cupy/cuda/memory_hook."
#define OWN_MODULE   "_memshim_cupy"

/* cupy_hook.py, and a zero byte. */
extern const char ms_cupy_hook_text[] __attribute__((visibility("hidden")));
__asm__(".pushsection .rodata\n"
        ".globl ms_cupy_hook_text\n"
        ".hidden ms_cupy_hook_text\n"
        "ms_cupy_hook_text:\n"
        "    .incbin \"" MS_CUPY_HOOK_FILE "\"\n"
        "    .byte 0\n"
        ".popsection\n");

/* ---- functions that the lines call ---- */

static bool inside(const void *address)
{
    return address != NULL && ms_guard_enter_here();
}

static void block_made(int device, const void *address, size_t bytes)
{
    (void)bytes;
    if (inside(address)) {
        ms_serve_kept_block(device, address);
        ms_guard_leave();
    }
}

static void array_made(int device, const void *address, size_t bytes)
{
    if (bytes <= INT64_MAX && inside(address)) {
        ms_serve_kept_range(device, address, (int64_t)bytes);
        ms_guard_leave();
    }
}

static void array_gone(int device, const void *address, size_t bytes)
{
    if (bytes <= INT64_MAX && inside(address)) {
        ms_serve_kept_range(device, address, -(int64_t)bytes);
        ms_guard_leave();
    }
}

/* ---- Python ---- */

/* Python's objects. All of these functions except the first are in its stable interface. */
typedef struct python_object object_t;

static struct {
    int (*holds_lock)(void);                              /* PyGILState_Check */
    object_t *(*error)(void);                             /* borrowed */
    void (*clear_error)(void);                            /* of this thread */
    object_t *(*module)(const char *name);                /* borrowed; made if there is none */
    object_t *(*names)(object_t *module);                 /* borrowed */
    object_t *(*name)(object_t *names, const char *name); /* borrowed, or null without an error */
    int (*set_name)(object_t *names, const char *name, object_t *value);
    object_t *(*build)(const char *format, ...);
    object_t *(*compile)(const char *text, const char *file, int kind);
    object_t *(*run)(object_t *code, object_t *globals, object_t *locals);
    int (*is_true)(object_t *object);
    void (*drop)(object_t *object);
} python;

enum { FILE_INPUT = 257 }; /* Py_file_input: whole lines, not an expression */

static bool bind_python(void)
{
    static const struct {
        const char *name;
        void *place;
    } functions[] = {
        {"PyGILState_Check", &python.holds_lock},   {"PyErr_Occurred", &python.error},
        {"PyErr_Clear", &python.clear_error},       {"PyImport_AddModule", &python.module},
        {"PyModule_GetDict", &python.names},        {"PyDict_GetItemString", &python.name},
        {"PyDict_SetItemString", &python.set_name}, {"Py_BuildValue", &python.build},
        {"Py_CompileString", &python.compile},      {"PyEval_EvalCode", &python.run},
        {"PyObject_IsTrue", &python.is_true},       {"Py_DecRef", &python.drop},
    };
    struct ms_loaded_elf elf;
    if (!ms_elf_defining("PyGILState_Check", &elf)) {
        return false;
    }
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *address = ms_elf_function(&elf, functions[i].name);
        if (address == NULL) {
            return false;
        }
        memcpy(functions[i].place, &address, sizeof(address));
    }
    return true;
}

static bool run_lines(object_t *names)
{
    object_t *addresses = python.build("(KKK)", (unsigned long long)(uintptr_t)block_made,
                                       (unsigned long long)(uintptr_t)array_made,
                                       (unsigned long long)(uintptr_t)array_gone);
    object_t *code = python.compile(ms_cupy_hook_text, "<memshim cupy>", FILE_INPUT);
    object_t *done = NULL;
    if (addresses != NULL && code != NULL && python.set_name(names, "ADDRESSES", addresses) == 0) {
        done = python.run(code, names, names);
    }
    const bool ran = done != NULL;
    object_t *const made[] = {addresses, code, done};
    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
        if (made[i] != NULL) {
            python.drop(made[i]);
        }
    }
    return ran;
}

/* False: not yet. A failed attempt is not repeated. */
static bool install(void)
{
    static const char text[] = "memshim sees CuPy's arrays through a memory hook; it takes no "
                               "memory out of the blocks of CuPy's pool";
    object_t *module = python.module(OWN_MODULE);
    object_t *names = module != NULL ? python.names(module) : NULL;
    if (names == NULL || !run_lines(names)) {
        python.clear_error();
        ms_log(MS_LOG_INFO, "memshim does not see CuPy's arrays: no memory hook could be made");
        return true;
    }
    object_t *installed = python.name(names, "INSTALLED");
    if (installed == NULL || python.is_true(installed) != 1) {
        return false;
    }
    ms_session_note(text);
    ms_log(MS_LOG_INFO, "%s", text);
    return true;
}

static bool is_cupys(const char *name, const void *found)
{
    struct ms_loaded_elf elf;
    uintptr_t begin = 0;
    uintptr_t end = 0;
    return strcmp(name, HOOKS_MODULE) == 0 && ms_elf_around((uintptr_t)found, &elf, &begin, &end) &&
           strstr(elf.path, HOOKS_PATH) != NULL;
}

void ms_cupy_module(const char *name, const void *found)
{
    /* Set while CuPy's hooks wait for ours. The thread that installs it clears it first, because
     * what it runs may import something, too. */
    static _Atomic bool waiting;
    if (found == NULL || ms_process_inert() || !ms_options_framework(MS_FRAMEWORK_CUPY) ||
        !ms_options()->pool) {
        return;
    }
    if (atomic_load(&waiting) && python.holds_lock() == 1 && python.error() == NULL &&
        atomic_exchange(&waiting, false) && !install()) {
        atomic_store(&waiting, true);
    }
    if (is_cupys(name, found) && bind_python()) {
        atomic_store(&waiting, true);
    }
}
