/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime's double on a machine without a driver.
 */
#include "check.h"

Test(no_driver, is_an_error_and_no_crash)
{
    int count = 7, version = 7;
    void *pointer = NULL;
    EXPECT(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    cr_assert_eq(count, 0);
    EXPECT(cudaMalloc(&pointer, 1), cudaErrorInsufficientDriver);
    EXPECT(cudaGetLastError(), cudaErrorInsufficientDriver);
    OK(cudaDriverGetVersion(&version));
    cr_assert_eq(version, 0);
}
