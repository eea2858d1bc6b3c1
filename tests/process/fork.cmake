# SPDX-License-Identifier: Apache-2.0
# Forks while memory is short, and before the device is used.
process_program(fork_job SOURCES fork_job.c driver_resolved.c)
process_program(settings_fork_job SOURCES settings_fork_job.c LIBRARIES torch_double)
set_target_properties(settings_fork_job PROPERTIES SKIP_BUILD_RPATH OFF)
list(APPEND suites test_fork)
