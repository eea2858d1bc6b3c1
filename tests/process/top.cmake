# SPDX-License-Identifier: Apache-2.0
# What running processes tell: memshim top, memshim_stats(), the status line.
process_program(top_job SOURCES top_job.c driver_resolved.c)
target_include_directories(top_job PRIVATE ${CMAKE_SOURCE_DIR})
list(APPEND suites test_top)
