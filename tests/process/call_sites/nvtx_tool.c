/* SPDX-License-Identifier: Apache-2.0 */
/* A tool of somebody else's: it takes every copy of NVTX, says so, and answers nothing. */
#include <stdio.h>

__attribute__((visibility("default"))) int
InitializeInjectionNvtx2(const void *(*tables)(unsigned));

int InitializeInjectionNvtx2(const void *(*tables)(unsigned))
{
    (void)tables;
    (void)puts("another tool was asked");
    return 1;
}
