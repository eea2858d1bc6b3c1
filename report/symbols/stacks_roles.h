/* SPDX-License-Identifier: Apache-2.0 */
/* The role of a frame in a stack: the program's, a library's, the interpreter's, an allocator's.
 * Decided by names alone. */
#ifndef MEMSHIM_REPORT_SYMBOLS_STACKS_ROLES_H
#define MEMSHIM_REPORT_SYMBOLS_STACKS_ROLES_H

#include <stdbool.h>
#include <stdint.h>

enum ms_native_role {
    MS_ROLE_OTHER,
    MS_ROLE_EVALUATOR,   /* runs Python frames */
    MS_ROLE_INTERPRETER, /* between Python frames: only glue */
    MS_ROLE_SWITCH,      /* greenlet's: outside it begins another stack */
    MS_ROLE_ALLOCATOR    /* PyTorch's, the CUDA runtime's and driver's, memshim's own */
};

/* function: from the symbol table, null if unknown; module: path, may be null. */
enum ms_native_role ms_native_role(const char *function, const char *module);

/* Whether the module is only a Python interpreter: libpython3.11.so.1.0, python3. */
bool ms_is_interpreter(const char *module);

/* Whether the file came with the machine or with a package, not with the program. */
bool ms_is_library_module(const char *path);
bool ms_is_library_script(const char *file, const char *function);

/* Whether torch.compile wrote the code: a graph for a backend, or a file of Inductor. */
bool ms_is_compiled_script(const char *file);

/* Whether the file belongs to an installed package that is not PyTorch: it may be a model. */
bool ms_is_package_script(const char *file);

/* Whether the frame names the operation whose gradient autograd computes; function: demangled. */
bool ms_is_backward_operation(const char *function);

#endif
