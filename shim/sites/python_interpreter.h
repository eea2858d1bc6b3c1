/* SPDX-License-Identifier: Apache-2.0 */
/* The CPython of this process: found once, by the dynamic symbols of the executable or of its
 * libpython, whichever comes first in load order. */
#ifndef MEMSHIM_SHIM_SITES_PYTHON_INTERPRETER_H
#define MEMSHIM_SHIM_SITES_PYTHON_INTERPRETER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/tables/python_layout.h"

/* All of these only read a variable, or this thread's own slot; none takes a lock or needs the GIL.
 * Of Python/pystate.c: own_thread asks whether the slot was made and reads it (pthread_getspecific;
 * newer versions: a thread-local variable), the interpreters' head and main are loads. finalizing
 * and running_thread were read in the machine code of 3.11 and 3.12 alone. */
struct ms_python_interpreter {
    struct ms_python_layout layout;
    uint64_t code_type;              /* address of PyCode_Type */
    void *(*own_thread)(void);       /* PyGILState_GetThisThreadState */
    int (*finalizing)(void);         /* thread states are about to be freed, or have been */
    void *(*running_thread)(void);   /* 3.9 to 3.11: that of whoever holds the GIL; else null */
    void *(*last_interpreter)(void); /* the one made last */
    void *(*main_interpreter)(void);
};

/* Null where there is none that can be read. Warm: a load. Where none was found, a thread looks
 * again at its first capture and at each 256th, and then only where libraries were loaded since. */
const struct ms_python_interpreter *ms_python_interpreter(void);

/* Memory of this process that may not be there. False: it is not. errno stays. */
bool ms_python_read(uint64_t at, void *to, size_t bytes);

#endif
