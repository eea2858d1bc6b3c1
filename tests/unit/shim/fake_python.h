/* SPDX-License-Identifier: Apache-2.0 */
/* The few symbols of an interpreter that are looked for, over structures that a test makes up. */
#ifndef MEMSHIM_TESTS_FAKE_PYTHON_H
#define MEMSHIM_TESTS_FAKE_PYTHON_H

#include <stdint.h>

struct fake_python {
    const char *version;      /* what Py_GetVersion says */
    void (*on_version)(void); /* called first, once, by the first Py_GetVersion; or null */
    void *thread;             /* this thread's state */
    int finalizing;
    uint64_t *runtime; /* _PyRuntime, 512 words */
    void **code_type;  /* PyCode_Type; word 1 is its type */
    void *type_type;   /* PyType_Type */
};

/* As fake_python(), in the library of that name. */
typedef struct fake_python *fake_python_t(void);

#endif
