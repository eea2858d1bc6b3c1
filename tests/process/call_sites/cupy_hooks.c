/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for CuPy's module cupy.cuda.memory_hook, and for another that is imported after it:
 * hooks as CuPy documents them, a thread's own, and a pool that says which calls it was given. */
#include <Python.h>

PyMODINIT_FUNC PyInit_memory_hook(void);
PyMODINIT_FUNC PyInit_pinned_memory(void);

static const char lines[] =
    "import threading\n"
    "class Hooks(threading.local):\n"
    "    def __init__(self): self.hooks = {}\n"
    "mine = Hooks()\n"
    "def get_memory_hooks(): return mine.hooks\n"
    "class MemoryHook:\n"
    "    name = 'MemoryHook'\n"
    "    def __enter__(self):\n"
    "        if self.name in mine.hooks: raise KeyError(self.name)\n"
    "        mine.hooks[self.name] = self\n"
    "        return self\n"
    "    def __exit__(self, *_): del mine.hooks[self.name]\n"
    "    def alloc_postprocess(self, **what): pass\n"
    "    def malloc_postprocess(self, **what): pass\n"
    "    def free_preprocess(self, **what): pass\n"
    "def tell(name, at, asked, **more):\n"
    "    for hook in list(mine.hooks.values()):\n"
    "        getattr(hook, name)(device_id=0, mem_ptr=at,\n"
    "                            mem_size=(asked + 511) // 512 * 512, **more)\n"
    "def alloc(at, size): tell('alloc_postprocess', at, size)\n"
    "def malloc(at, size):\n"
    "    tell('malloc_postprocess', at, size, size=size, pmem_id=1)\n"
    "def free(at, size): tell('free_preprocess', at, size, pmem_id=1)\n";

static struct PyModuleDef hooks = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "memory_hook", .m_size = -1};
static struct PyModuleDef later = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "pinned_memory", .m_size = -1};

PyMODINIT_FUNC PyInit_memory_hook(void)
{
    PyObject *module = PyModule_Create(&hooks);
    PyObject *names = module != NULL ? PyModule_GetDict(module) : NULL;
    /* Frames of CuPy's are none of the program's. */
    PyObject *code = Py_CompileString(lines, "<frozen cupy>", Py_file_input);
    PyObject *done = names != NULL && code != NULL ? PyEval_EvalCode(code, names, names) : NULL;
    Py_XDECREF(code);
    if (done == NULL) {
        Py_XDECREF(module);
        return NULL;
    }
    Py_DECREF(done);
    return module;
}

PyMODINIT_FUNC PyInit_pinned_memory(void)
{
    return PyModule_Create(&later);
}
