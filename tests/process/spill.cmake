# What the machine can do, and spilling from end to end.
list(APPEND suites test_doctor)
