# SPDX-License-Identifier: Apache-2.0
# What is waited for before memory moves or is handed out again.
process_program(order_job SOURCES order_job.c LIBRARIES gate_memshim simgpu_cuda)
list(APPEND suites test_order)
# Its functions are in the headers of CUDA 12.5 and later.
if(MEMSHIM_CUDA_VERSION GREATER_EQUAL 12050)
  process_program(green_job SOURCES green_job.c LIBRARIES gate_memshim simgpu_cuda)
endif()
