# SPDX-License-Identifier: Apache-2.0
# What the survey finds: growth, kinds at an out-of-memory, sizes, temporaries.
process_program(growth_job SOURCES growth_job.c driver_resolved.c)
target_include_directories(growth_job PRIVATE ${CMAKE_SOURCE_DIR})
list(APPEND suites test_growth)
