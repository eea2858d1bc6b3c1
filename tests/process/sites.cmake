# SPDX-License-Identifier: Apache-2.0
# Which code asked for memory: a program with known places, a library that it loads, and what a trace
# says of both.
process_program(sites_job SOURCES sites_job.c driver_resolved.c)
# With unwind tables, and frames of its own for every function: the test knows them by name.
target_compile_options(sites_job PRIVATE -fno-optimize-sibling-calls -fno-inline)
foreach(plugin sites_plugin sites_plugin_again)
  add_library(${plugin} MODULE programs/sites_plugin.c)
  target_link_libraries(${plugin} PRIVATE cuda_headers)
  set_target_properties(${plugin} PROPERTIES PREFIX "")
endforeach()
process_program(trace_sites SOURCES trace_sites.c trace_events.c LIBRARIES ms_reader)
list(APPEND suites test_sites)
