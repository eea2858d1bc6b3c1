# SPDX-License-Identifier: Apache-2.0
# Python's frames, on an interpreter that a test makes up.
add_library(fake_python MODULE fake_python.c)
set_target_properties(fake_python PROPERTIES C_VISIBILITY_PRESET default)
set(python ${door}/sites/python)
add_executable(unit_shim_python test_python.c ${python}/python.c ${python}/python_code.c
               ${python}/python_interpreter.c ${python}/python_known.c ${door}/tables/python_layout.c
               ${door}/sites/native/thread_memory.c ${door}/driver/elf.c)
target_compile_definitions(unit_shim_python PRIVATE _GNU_SOURCE)
target_include_directories(unit_shim_python PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(unit_shim_python PRIVATE ms_allocator criterion ${CMAKE_DL_LIBS})
add_dependencies(unit_shim_python fake_python)
add_lone_test(NAME shim.python COMMAND unit_shim_python)
set_tests_properties(shim.python PROPERTIES
  ENVIRONMENT "FAKE_PYTHON=$<TARGET_FILE:fake_python>")
