# SPDX-License-Identifier: Apache-2.0
# Memory that several processes share.
process_program(ipc_job SOURCES ipc_job.c LIBRARIES simgpu_cuda)
list(APPEND suites test_sharing)
