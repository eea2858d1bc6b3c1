# SPDX-License-Identifier: Apache-2.0
# What is waited for before memory moves or is handed out again.
process_program(order_job SOURCES order_job.c LIBRARIES gate_memshim simgpu_cuda)
list(APPEND suites test_order)
