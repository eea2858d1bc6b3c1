# Standstills. The programs ask for them through entries that memshim does not export: its objects,
# linked once more with those (programs/gate_entry.c), are preloaded instead of libmemshim.so.
add_library(gate_memshim SHARED $<TARGET_OBJECTS:libmemshim> programs/gate_entry.c)
target_include_directories(gate_memshim PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_definitions(gate_memshim PRIVATE _GNU_SOURCE)
target_link_libraries(gate_memshim PRIVATE ms_tables ms_allocator ms_writer ms_reader ms_format
                      cuda_headers ${CMAKE_DL_LIBS} Threads::Threads)
target_link_options(gate_memshim PRIVATE -Wl,-z,nodelete -Wl,-z,defs -Wl,--exclude-libs,ALL)
process_program(gate_job SOURCES gate_job.c LIBRARIES gate_memshim simgpu_cuda)
process_program(gate_corners SOURCES gate_corners.c LIBRARIES gate_memshim simgpu_cuda)
target_include_directories(gate_corners PRIVATE ${CMAKE_SOURCE_DIR})
process_program(gate_cost SOURCES gate_cost.c driver_resolved.c)
process_program(heat_job SOURCES heat_job.c LIBRARIES gate_memshim simgpu_cuda)
process_program(heat_cost SOURCES heat_cost.c LIBRARIES gate_memshim simgpu_cuda)
list(APPEND suites test_gate test_heat)
