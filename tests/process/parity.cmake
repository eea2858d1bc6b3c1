# SPDX-License-Identifier: Apache-2.0
# What memshim answers where the driver is in a state of its own: calls that fail, frees that wait.
process_program(failing_job SOURCES failing_job.c driver_resolved.c)
target_include_directories(failing_job PRIVATE ${CMAKE_SOURCE_DIR}/tests)
list(APPEND suites test_failing test_parity)
process_program(free_job SOURCES free_job.c LIBRARIES simgpu_cuda)
target_include_directories(free_job PRIVATE ${CMAKE_SOURCE_DIR})
list(APPEND suites test_free)
process_program(parity_job SOURCES parity_job.c parity_world.c)
target_include_directories(parity_job PRIVATE ${CMAKE_SOURCE_DIR})
