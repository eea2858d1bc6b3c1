# SPDX-License-Identifier: Apache-2.0
# What running processes tell: memshim top, memshim_stats(), the status line.
process_program(top_job SOURCES top_job.c driver_resolved.c)
target_include_directories(top_job PRIVATE ${CMAKE_SOURCE_DIR})
list(APPEND suites test_top)
# A host whose clock is not that of the others.
add_library(clock_ahead SHARED programs/clock_ahead.c)
set_target_properties(clock_ahead PROPERTIES C_VISIBILITY_PRESET default)
target_compile_definitions(clock_ahead PRIVATE _GNU_SOURCE)
list(APPEND suites test_clocks)
