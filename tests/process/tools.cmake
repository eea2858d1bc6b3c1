# SPDX-License-Identifier: Apache-2.0
# Programs as other people build them, and what they may mind of a call.
include(CheckCSourceCompiles)

foreach(name barred_job quiet_job tools_job)
  process_program(${name} SOURCES ${name}.c LIBRARIES simgpu_cuda)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
endforeach()
target_link_libraries(quiet_job PRIVATE m)

# tools_<way>_job, where the compiler has what that takes.
set(way_thread -fsanitize=thread)
set(way_address -fsanitize=address)
set(way_undefined -fsanitize=undefined)
set(way_leak -fsanitize=leak)
set(way_profiled -pg)
if(NOT MEMSHIM_SANITIZE)
  foreach(way thread address undefined leak profiled)
    set(CMAKE_REQUIRED_FLAGS ${way_${way}})
    check_c_source_compiles("int main(void) { return 0; }" MEMSHIM_BUILDS_${way})
    unset(CMAKE_REQUIRED_FLAGS)
    if(MEMSHIM_BUILDS_${way})
      process_program(tools_${way}_job SOURCES tools_job.c LIBRARIES simgpu_cuda)
      target_compile_options(tools_${way}_job PRIVATE ${way_${way}} -O1)
      target_link_options(tools_${way}_job PRIVATE ${way_${way}})
    endif()
  endforeach()
endif()
list(APPEND suites test_tools test_quiet)

# The library is beside the program.
add_library(constructor_library SHARED programs/constructor_library.c)
target_link_libraries(constructor_library PRIVATE cuda_headers simgpu_cuda)
process_program(constructor_job SOURCES constructor_job.c LIBRARIES constructor_library simgpu_cuda)
set_target_properties(constructor_job PROPERTIES SKIP_BUILD_RPATH OFF BUILD_RPATH "$ORIGIN")
