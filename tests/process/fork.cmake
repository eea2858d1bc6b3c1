# SPDX-License-Identifier: Apache-2.0
# Forks while memory is short.
process_program(fork_job SOURCES fork_job.c driver_resolved.c)
list(APPEND suites test_fork)
