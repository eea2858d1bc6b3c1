/* SPDX-License-Identifier: Apache-2.0 */
/* What a frame is to a reader of stacks: the program's, a library's, the interpreter's, an
 * allocator's. Judged by names alone. */
#ifndef MEMSHIM_REPORT_SYMBOLS_STACKS_ROLES_H
#define MEMSHIM_REPORT_SYMBOLS_STACKS_ROLES_H

#include <stdbool.h>
#include <stdint.h>

enum ms_native_role {
    MS_ROLE_OTHER,
    MS_ROLE_EVALUATOR,   /* runs Python frames */
    MS_ROLE_INTERPRETER, /* between Python frames: no more than glue */
    MS_ROLE_SWITCH,      /* greenlet's: outside of it is another stack */
    MS_ROLE_ALLOCATOR    /* PyTorch's, the CUDA runtime's and driver's, memshim's own */
};

/* function: as the symbol table has it, null where it is not known; module: path, may be null. */
enum ms_native_role ms_native_role(const char *function, const char *module);

/* A module that is nothing but a Python interpreter: libpython3.11.so.1.0, python3. */
bool ms_is_interpreter(const char *module);

/* Files that came with the machine or with a package, not with the program. */
bool ms_is_library_module(const char *path);
bool ms_is_library_script(const char *file, const char *function);

/* Of a package that was installed, and not PyTorch's own: a model may be. */
bool ms_is_package_script(const char *file);

/* A frame that says which operation's gradient autograd computes; function: demangled. */
bool ms_is_backward_operation(const char *function);

#endif
