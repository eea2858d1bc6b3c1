# SPDX-License-Identifier: Apache-2.0
# A chunk mapped at two addresses: no byte in two blocks, none handed over early.
process_program(views_job SOURCES views_job.c driver_resolved.c)
list(APPEND suites test_views)
