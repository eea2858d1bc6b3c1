/* SPDX-License-Identifier: Apache-2.0 */
/* Common parts of the runtime double's suites: a check that prints the error's name. */
#ifndef SIMGPU_RUNTIME_TEST_CHECK_H
#define SIMGPU_RUNTIME_TEST_CHECK_H

#include <criterion/criterion.h>
#include <cuda_runtime_api.h>

#define EXPECT(call, expected)                                                           \
    do {                                                                                 \
        cudaError_t given_ = (call);                                                     \
        cr_assert_eq(given_, (expected), "%s gave %s", #call, cudaGetErrorName(given_)); \
    } while (0)

#define OK(call) EXPECT(call, cudaSuccess)

/* True if each of the `count` bytes is `value`. */
static inline int all_are(const void *bytes, size_t count, unsigned char value)
{
    for (size_t i = 0; i < count; i++) {
        if (((const unsigned char *)bytes)[i] != value) {
            return 0;
        }
    }
    return 1;
}

#endif
