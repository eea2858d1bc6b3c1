/* SPDX-License-Identifier: Apache-2.0 */
/* What stub_driver.c records, for the test of how the runtime finds a driver. */
#ifndef SIMGPU_RUNTIME_TEST_STUB_DRIVER_H
#define SIMGPU_RUNTIME_TEST_STUB_DRIVER_H

#include <stddef.h>

/* One call of cuGetProcAddress_v2. */
struct stub_question {
    char symbol[96];
    int version;
    unsigned long long flags;
};

/* All of them so far, in order; returns their number. */
size_t stub_questions(const struct stub_question **out);

/* Calls of cuInit so far. */
int stub_initializations(void);

#endif
