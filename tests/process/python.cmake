# SPDX-License-Identifier: Apache-2.0
# What is read of Python's frames (shim/sites/python/python.h), asked from inside interpreters.
set(python ${CMAKE_SOURCE_DIR}/shim/sites/python)
add_library(python_frames SHARED programs/python_frames.c ${python}/python.c ${python}/python_code.c
            ${python}/python_interpreter.c ${python}/python_known.c
            ${CMAKE_SOURCE_DIR}/shim/tables/python_layout.c
            ${CMAKE_SOURCE_DIR}/shim/sites/native/thread_memory.c
            ${CMAKE_SOURCE_DIR}/shim/driver/elf.c)
target_include_directories(python_frames PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_definitions(python_frames PRIVATE _GNU_SOURCE)
target_link_libraries(python_frames PRIVATE ms_allocator Threads::Threads ${CMAKE_DL_LIBS})
list(APPEND suites test_python_frames test_python_package)
add_library(cupy_hooks SHARED programs/cupy_hooks.c)
target_link_libraries(cupy_hooks PRIVATE Python3::Module)
list(APPEND suites test_cupy)
