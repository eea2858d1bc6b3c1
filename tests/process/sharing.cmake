# SPDX-License-Identifier: Apache-2.0
# Memory that several processes share.
process_program(ipc_job SOURCES ipc_job.c LIBRARIES simgpu_cuda)
process_program(map_job SOURCES map_job.c LIBRARIES simgpu_cuda)
target_include_directories(map_job PRIVATE ${CMAKE_SOURCE_DIR})
list(APPEND suites test_sharing test_map)
