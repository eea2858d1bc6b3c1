# SPDX-License-Identifier: Apache-2.0
# What the serving half promises, scenario by scenario.
process_program(serve_job
                SOURCES serve_job.c serve_charges.c serve_contexts.c serve_pools.c serve_memory.c
                LIBRARIES simgpu_cuda)
target_include_directories(serve_job PRIVATE ${CMAKE_SOURCE_DIR})
list(APPEND suites test_serve)
