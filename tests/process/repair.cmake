# Holes taken all the while, every byte checked.
process_program(repair_job SOURCES repair_job.c repair_allocator.c LIBRARIES simgpu_cuda)
target_include_directories(repair_job PRIVATE ${CMAKE_SOURCE_DIR})
list(APPEND suites test_repair_job)
