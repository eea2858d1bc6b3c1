# What the serving half promises (shim/serve/), scenario by scenario.
process_program(serve_job SOURCES serve_job.c LIBRARIES simgpu_cuda)
list(APPEND suites test_serve)
