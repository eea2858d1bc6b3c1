# SPDX-License-Identifier: Apache-2.0
# Why memory ran out, planted: one scenario a verdict; and the ledger, beside the device's own count.
process_program(verdict_job SOURCES verdict_job.c driver_resolved.c)
target_include_directories(verdict_job PRIVATE ${CMAKE_SOURCE_DIR})
list(APPEND suites test_verdict test_contradictions)
