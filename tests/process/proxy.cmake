# SPDX-License-Identifier: Apache-2.0
# PyTorch's pages (shim/policy/proxies.c), from a library of the name that memshim looks for, beside the
# stand-in for libc10 (tests/bench).
add_library(torch_double SHARED programs/torch_double.c)
target_link_libraries(torch_double PRIVATE cuda_headers simgpu_cuda bench_c10)
target_compile_options(torch_double PRIVATE -fno-optimize-sibling-calls)
set_target_properties(torch_double PROPERTIES OUTPUT_NAME c10_cuda C_VISIBILITY_PRESET default
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/torch_double)
process_program(proxy_job SOURCES proxy_job.c LIBRARIES simgpu_cuda torch_double)
set_target_properties(proxy_job PROPERTIES SKIP_BUILD_RPATH OFF)
target_include_directories(proxy_job PRIVATE ${CMAKE_SOURCE_DIR})
process_program(ipc_page_job SOURCES ipc_page_job.c pair.c LIBRARIES simgpu_cuda torch_double)
set_target_properties(ipc_page_job PROPERTIES SKIP_BUILD_RPATH OFF)
process_program(probe_job SOURCES probe_job.c driver_resolved.c)
list(APPEND suites test_proxy test_host_road)
