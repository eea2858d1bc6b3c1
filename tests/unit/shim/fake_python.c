/* SPDX-License-Identifier: Apache-2.0 */
/* The few symbols of an interpreter that are looked for, over structures that a test makes up.
 * See fake_python.h. */
#include "fake_python.h"

#include <stddef.h>

/* The names are CPython's. */
extern uint64_t _PyRuntime[512];
extern void *PyCode_Type[4], *PyType_Type[4];
const char *Py_GetVersion(void);
void *PyGILState_GetThisThreadState(void);
int _Py_IsFinalizing(void);
void *_PyThreadState_UncheckedGet(void);
void *PyInterpreterState_Head(void);
void *PyInterpreterState_Main(void);
fake_python_t fake_python;

uint64_t _PyRuntime[512];
void *PyType_Type[4] = {NULL};
void *PyCode_Type[4] = {NULL, PyType_Type};

static struct fake_python fake = {
    .runtime = _PyRuntime, .code_type = PyCode_Type, .type_type = PyType_Type};

struct fake_python *fake_python(void)
{
    return &fake;
}

const char *Py_GetVersion(void)
{
    void (*once)(void) = fake.on_version;
    fake.on_version = NULL;
    if (once != NULL) {
        once();
    }
    return fake.version;
}

void *PyGILState_GetThisThreadState(void)
{
    return fake.thread;
}

int _Py_IsFinalizing(void)
{
    return fake.finalizing;
}

/* Up to 3.11. There is one interpreter. */
void *_PyThreadState_UncheckedGet(void)
{
    return fake.thread;
}

void *PyInterpreterState_Head(void)
{
    return _PyRuntime;
}

void *PyInterpreterState_Main(void)
{
    return _PyRuntime;
}
