# SPDX-License-Identifier: Apache-2.0
# What the machine can do, and spilling from end to end.
process_program(spill_job SOURCES spill_job.c driver_resolved.c LIBRARIES simgpu_cuda)
target_include_directories(spill_job PRIVATE ${CMAKE_SOURCE_DIR}/tests/simgpu)
process_program(step_job SOURCES step_job.c driver_resolved.c)
process_program(ledger_job SOURCES ledger_job.c driver_resolved.c)
target_include_directories(ledger_job PRIVATE ${CMAKE_SOURCE_DIR})
process_program(born_job SOURCES born_job.c LIBRARIES simgpu_cuda)
process_program(share_job SOURCES share_job.c driver_resolved.c)
list(APPEND suites test_doctor test_spill)
