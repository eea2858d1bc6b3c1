/* SPDX-License-Identifier: Apache-2.0 */
/* The CPython of this process. Found once, by the dynamic symbols of the executable or of its
 * libpython, whichever comes first in load order. */
#ifndef MEMSHIM_SHIM_SITES_PYTHON_PYTHON_INTERPRETER_H
#define MEMSHIM_SHIM_SITES_PYTHON_PYTHON_INTERPRETER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/tables/python_layout.h"

/* All of these only read a variable, or this thread's own slot; none takes a lock or needs the GIL.
 * By Python/pystate.c, own_thread checks that the slot was made and reads it (pthread_getspecific;
 * in newer versions a thread-local variable), and the interpreters' head and main are loads.
 * finalizing and running_thread were checked in the machine code of 3.11 and 3.12 only. */
struct ms_python_interpreter {
    struct ms_python_layout layout;
    uint64_t code_type;              /* address of PyCode_Type */
    void *(*own_thread)(void);       /* PyGILState_GetThisThreadState */
    int (*finalizing)(void);         /* thread states are about to be freed, or have been */
    void *(*running_thread)(void);   /* 3.9 to 3.11: the state that holds the GIL; otherwise null */
    void *(*last_interpreter)(void); /* the newest one */
    void *(*main_interpreter)(void);
};

/* Null if there is no readable interpreter. Once found, this costs a load. Until then, a thread
 * searches at its first capture and at every 256th, and only if libraries were loaded since. */
const struct ms_python_interpreter *ms_python_interpreter(void);

/* Reads memory of this process that may not be mapped. False: it is not. Keeps errno. */
bool ms_python_read(uint64_t at, void *to, size_t bytes);

#endif
