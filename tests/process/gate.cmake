# SPDX-License-Identifier: Apache-2.0
# Standstills. The programs ask for them through entries that memshim does not export: its objects,
# linked once more with those (programs/gate_entry.c), are preloaded instead of libmemshim.so.
add_library(gate_memshim SHARED programs/gate_entry.c)
preloaded(gate_memshim "${checked}")
target_include_directories(gate_memshim PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_definitions(gate_memshim PRIVATE _GNU_SOURCE)
target_link_libraries(gate_memshim PRIVATE cuda_headers ${CMAKE_DL_LIBS} Threads::Threads)
target_link_options(gate_memshim PRIVATE -Wl,-z,nodelete -Wl,-z,defs -Wl,--exclude-libs,ALL)
# It probes the device with the memshim command, which it looks for beside itself.
file(CREATE_LINK ${CMAKE_BINARY_DIR}/memshim ${CMAKE_CURRENT_BINARY_DIR}/memshim SYMBOLIC)
if(MEMSHIM_SANITIZE)
  set(unexported ${CMAKE_CURRENT_BINARY_DIR}/unexported.map)
  file(WRITE ${unexported} "{\n  local:\n    dlsym;\n    dlvsym;\n};\n")
  target_link_options(gate_memshim PRIVATE -Wl,--version-script=${unexported})
endif()
# It looks for the command beside itself, to try what the device can do.
add_custom_command(TARGET gate_memshim POST_BUILD
  COMMAND ${CMAKE_COMMAND} -E create_symlink $<TARGET_FILE:memshim>
          $<TARGET_FILE_DIR:gate_memshim>/memshim)
process_program(gate_job SOURCES gate_job.c LIBRARIES gate_memshim simgpu_cuda)
process_program(gate_corners SOURCES gate_corners.c LIBRARIES gate_memshim simgpu_cuda)
target_include_directories(gate_corners PRIVATE ${CMAKE_SOURCE_DIR})
process_program(gate_cost SOURCES gate_cost.c driver_resolved.c)
process_program(heat_job SOURCES heat_job.c LIBRARIES gate_memshim simgpu_cuda)
process_program(heat_cost SOURCES heat_cost.c LIBRARIES gate_memshim simgpu_cuda)
process_program(spill_corners SOURCES spill_corners.c LIBRARIES gate_memshim simgpu_cuda)
process_program(spill_identity SOURCES spill_identity.c LIBRARIES gate_memshim simgpu_cuda)
list(APPEND suites test_gate test_heat test_spill_corners)
