# SPDX-License-Identifier: Apache-2.0
# Holes taken all the while, every byte checked. The allocator is a library of PyTorch's name, beside
# the stand-in for libc10 (tests/bench).
add_library(repair_allocator SHARED programs/repair_allocator.c)
target_include_directories(repair_allocator PRIVATE ${CMAKE_SOURCE_DIR})
target_link_libraries(repair_allocator PRIVATE simgpu_cuda cuda_headers bench_c10 Threads::Threads)
set_target_properties(repair_allocator PROPERTIES OUTPUT_NAME c10_cuda)
process_program(repair_job SOURCES repair_job.c LIBRARIES simgpu_cuda repair_allocator)
set_target_properties(repair_job PROPERTIES SKIP_BUILD_RPATH OFF)
list(APPEND suites test_repair_job)
