# SPDX-License-Identifier: Apache-2.0
# Whose memory it was that came and went while a module was loaded.
process_program(overhead_job SOURCES overhead_job.c driver_resolved.c)
# Its own fopen has to be found by the driver's library.
set_target_properties(overhead_job PROPERTIES ENABLE_EXPORTS ON)
list(APPEND suites test_overhead)
