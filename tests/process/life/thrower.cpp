/* SPDX-License-Identifier: Apache-2.0 */
// An extension module of Python whose function throws and catches a C++ exception, also through a
// frame with a destructor and across a call back into Python.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdexcept>
#include <string>

namespace
{

struct Counter {
    int &count;
    ~Counter()
    {
        ++count;
    }
};

void descend(int depth, int &unwound)
{
    Counter counter{unwound};
    if (depth == 0) {
        throw std::runtime_error("thrown at the bottom");
    }
    descend(depth - 1, unwound);
}

PyObject *throw_and_catch(PyObject *, PyObject *callback)
{
    int unwound = 0;
    std::string caught;
    PyObject *answer = PyObject_CallNoArgs(callback);
    if (answer == nullptr) {
        return nullptr;
    }
    Py_DECREF(answer);
    try {
        descend(9, unwound);
    } catch (const std::exception &error) {
        caught = error.what();
    }
    return Py_BuildValue("si", caught.c_str(), unwound);
}

PyMethodDef methods[] = {{"throw_and_catch", throw_and_catch, METH_O, nullptr},
                         {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "thrower", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

} // namespace

PyMODINIT_FUNC PyInit_thrower()
{
    return PyModule_Create(&module);
}
