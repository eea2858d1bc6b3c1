# SPDX-License-Identifier: Apache-2.0
# Native stacks: a library of their sources, since a library's own frames are left out, and frames of
# all shapes to walk.
enable_language(CXX)
set(native_sources
  native.c native_known.c native_stack.c native_step.c thread_memory.c
  cfi_reader.c cfi_entry.c unwind_library.c unwind_rule.c unwind_tables.c modules.c)
list(TRANSFORM native_sources PREPEND ${door}/sites/native/)
add_library(native_stacks SHARED ${native_sources} ${door}/driver/elf.c ${door}/driver/next_dlsym.c)
target_include_directories(native_stacks PUBLIC ${PROJECT_SOURCE_DIR})
target_compile_definitions(native_stacks PUBLIC _GNU_SOURCE)
target_compile_options(native_stacks PRIVATE -include ${door}/driver/glibc.h -fno-tree-slp-vectorize)
target_link_libraries(native_stacks PRIVATE ms_shim_process ms_allocator ${CMAKE_DL_LIBS} Threads::Threads)
set_target_properties(native_stacks PROPERTIES C_VISIBILITY_PRESET default)

set(frames_o0 -O0)
set(frames_o2 -O2 -fomit-frame-pointer)
set(frames_o2_pointers -O2 -fno-omit-frame-pointer)
set(frames_os -Os -fomit-frame-pointer)
foreach(flags o0 o2 o2_pointers os)
  add_library(native_frames_${flags} OBJECT native_frames.c)
  target_compile_definitions(native_frames_${flags} PRIVATE FLAGS=${flags})
  target_compile_options(native_frames_${flags} PRIVATE ${frames_${flags}})
  list(APPEND frames $<TARGET_OBJECTS:native_frames_${flags}>)
endforeach()

# Of the same size in the file, with frames of two sizes.
foreach(plug a b)
  add_library(native_plug_${plug} SHARED native_plug.c)
  set_target_properties(native_plug_${plug} PROPERTIES C_VISIBILITY_PRESET default)
endforeach()
target_compile_definitions(native_plug_a PRIVATE ROOM=1000)
target_compile_definitions(native_plug_b PRIVATE ROOM=3000)

add_library(native_walks STATIC native_walks.c)
target_link_libraries(native_walks PUBLIC native_stacks criterion ${CMAKE_DL_LIBS} Threads::Threads)
foreach(suite native native_unusual native_libraries)
  add_executable(unit_shim_${suite} test_${suite}.c ${frames})
  target_link_libraries(unit_shim_${suite} PRIVATE native_walks)
  add_lone_test(NAME shim.${suite} COMMAND unit_shim_${suite})
endforeach()
target_sources(unit_shim_native PRIVATE native_exceptions.cpp)
set_target_properties(unit_shim_native PROPERTIES LINKER_LANGUAGE CXX)
add_dependencies(unit_shim_native_libraries native_plug_a native_plug_b)
set_tests_properties(shim.native_libraries PROPERTIES ENVIRONMENT
  "PLUG_A=$<TARGET_FILE:native_plug_a>;PLUG_B=$<TARGET_FILE:native_plug_b>")
