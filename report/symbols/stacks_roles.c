/* SPDX-License-Identifier: Apache-2.0 */
/* Decides a frame's role in a stack by its function's and its module's name. */
#include "report/symbols/stacks_roles.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

#include "allocator/base/path.h"

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool begins_with_one_of(const char *text, const char *const *list)
{
    for (; *list; list++) {
        if (begins(text, *list)) {
            return true;
        }
    }
    return false;
}

bool ms_is_interpreter(const char *module)
{
    const char *name = ms_base_name(module);

    name += begins(name, "lib") ? strlen("lib") : 0;
    if (!begins(name, "python")) {
        return false;
    }
    name += strlen("python");
    name += strspn(name, "0123456789.");
    name += strspn(name, "dmt"); /* debug, pymalloc and free-threaded builds */
    return *name == 0 || begins(name, ".so") || begins(name, "so");
}

/* Compilers name clones with a suffix after a dot: .cold, .isra.0, .lto_priv.0. */
static bool is_evaluator(const char *function)
{
    const size_t bytes = strcspn(function, ".");

    return bytes == strlen("_PyEval_EvalFrameDefault") &&
           begins(function, "_PyEval_EvalFrameDefault");
}

/* The interpreter inside a program of another name: C code sees names of this form. */
static bool is_interpreter_function(const char *function)
{
    function += *function == '_';
    return begins(function, "Py") && (isupper((unsigned char)function[2]) || function[2] == '_') &&
           !begins(function, "PyInit");
}

static bool is_allocator(const char *function, const char *module)
{
    static const char *const modules[] = {"libmemshim.so", "libc10_cuda.so", "libcudart.so",
                                          "libcudart-",    "libcuda.so",     NULL};
    static const char *const functions[] = {"_ZN3c104cuda20CUDACachingAllocator",
                                            "_ZNK3c104cuda20CUDACachingAllocator",
                                            "_ZN3c104cuda15CUDAMallocAsync",
                                            "cudaMalloc",
                                            "cudaHostAlloc",
                                            NULL};

    return (module && begins_with_one_of(ms_base_name(module), modules)) ||
           (function && begins_with_one_of(function, functions));
}

enum ms_native_role ms_native_role(const char *function, const char *module)
{
    if (is_allocator(function, module)) {
        return MS_ROLE_ALLOCATOR;
    }
    if (function && is_evaluator(function)) {
        return MS_ROLE_EVALUATOR;
    }
    /* greenlet/_greenlet.cpython-311-x86_64-linux-gnu.so */
    if (module && begins(ms_base_name(module), "_greenlet.")) {
        return MS_ROLE_SWITCH;
    }
    return (module && ms_is_interpreter(module)) || (function && is_interpreter_function(function))
               ? MS_ROLE_INTERPRETER
               : MS_ROLE_OTHER;
}

static bool in_packages(const char *path)
{
    return strstr(path, "/site-packages/") || strstr(path, "/dist-packages/");
}

/* .../lib/python3.11/..., where CPython's getpath has the standard library. */
static bool in_standard_library(const char *file)
{
    for (const char *at = strstr(file, "/python3."); at; at = strstr(at + 1, "/python3.")) {
        const char *end = at + strlen("/python3.");
        const size_t digits = strspn(end, "0123456789");

        if (digits > 0 && (end[digits] == '/' || begins(end + digits, "t/")) &&
            ((at - file >= 4 && begins(at - 4, "/lib")) ||
             (at - file >= 6 && begins(at - 6, "/lib64")))) {
            return true;
        }
    }
    return strstr(file, "/python3") && strstr(file, ".zip/");
}

bool ms_is_library_module(const char *path)
{
    static const char *const places[] = {
        "/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "/usr/local/cuda", "/opt/nvidia/", NULL};

    static const char *const names[] = {"ld-linux",      "libc.so",      "libgcc_s.so",
                                        "libpthread.so", "libstdc++.so", NULL};

    return path[0] != '/' || begins_with_one_of(ms_base_name(path), names) ||
           in_standard_library(path) || begins_with_one_of(path, places) || in_packages(path) ||
           ms_is_interpreter(path) || is_allocator(NULL, path);
}

/* A script that an installer puts into bin/ to start a package by name. */
static bool is_launcher(const char *file, const char *function)
{
    const char *name = ms_base_name(file);

    return strcmp(function, "<module>") == 0 && !strchr(name, '.') && name - file >= 5 &&
           begins(name - 5, "/bin/");
}

/* A file that Inductor writes: "c", and 51 letters and digits of a hash, two of which name the
 * folder. */
static bool is_inductors(const char *file)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567";
    const char *name = ms_base_name(file);

    return name - file >= 4 && name[-4] == '/' && strspn(name, letters) == 52 &&
           strcmp(name + 52, ".py") == 0 && strncmp(name - 3, name + 1, 2) == 0;
}

/* Code without a file has a name in angle brackets. The importer's, PyTorch's generated code and
 * ours count as a library's; code that was typed, or passed to exec, is the program's. */
bool ms_is_library_script(const char *file, const char *function)
{
    static const char *const generated[] = {
        "<frozen ", "<eval_with_key>", "<__array_function__", "<attrs generated", "<memshim", NULL};

    return begins_with_one_of(file, generated) || in_packages(file) || in_standard_library(file) ||
           is_launcher(file, function) || is_inductors(file);
}

bool ms_is_compiled_script(const char *file)
{
    return begins(file, "<eval_with_key>") || is_inductors(file);
}

bool ms_is_package_script(const char *file)
{
    /* Packages that call models, and are none. */
    static const char *const callers[] = {"torch/",     "deepspeed/",         "accelerate/",
                                          "lightning/", "pytorch_lightning/", "lightning_fabric/",
                                          NULL};
    const char *inside = strstr(file, "-packages/");

    return inside && in_packages(file) &&
           !begins_with_one_of(inside + strlen("-packages/"), callers);
}

bool ms_is_backward_operation(const char *function)
{
    /* Besides an operation's own: adding gradients up, and summing them to the shape of their
     * tensor. */
    static const char *const others[] = {"torch::autograd::InputBuffer::add(",
                                         "torch::autograd::InputMetadata::reduce_grad(", NULL};

    return (begins(function, "torch::autograd::") && strstr(function, "::apply(")) ||
           begins_with_one_of(function, others);
}
