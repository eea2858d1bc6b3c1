/* SPDX-License-Identifier: Apache-2.0 */
/* The road of a program that links libcuda.so.1. */
#include "driver.h"

struct driver driver_open(void)
{
    return (struct driver){
/* NOLINTNEXTLINE(bugprone-macro-parentheses): the name of a field */
#define DRIVER_POINTER(name, version) .name = name,
        DRIVER_FUNCTIONS(DRIVER_POINTER)
#undef DRIVER_POINTER
    };
}
