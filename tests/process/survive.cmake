# SPDX-License-Identifier: Apache-2.0
# Hard places to read a stack in.
process_program(survive_job SOURCES survive_job.c driver_resolved.c)
target_compile_options(survive_job PRIVATE -fno-optimize-sibling-calls -fno-inline)
process_program(small_stack_job SOURCES small_stack_job.c driver_resolved.c)
add_library(survive_helper MODULE programs/survive_helper.c)
target_link_libraries(survive_helper PRIVATE cuda_headers Threads::Threads)
target_compile_options(survive_helper PRIVATE -fno-optimize-sibling-calls -fno-inline)
set_target_properties(survive_helper PROPERTIES PREFIX "")
list(APPEND suites test_survive)
